"""One file a verb, imported when it is asked for; `__init__.pyi` says where each is."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
