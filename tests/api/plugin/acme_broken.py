raise ImportError("acme needs its device")
