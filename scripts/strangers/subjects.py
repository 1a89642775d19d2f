"""What a subject of the set is: a network that somebody writes a second time, with a mistake."""

from typing import ClassVar

import torch
from torch import Tensor, nn


class Subject(nn.Module):
    """A network with seeded weights.

    Attributes:
        SLIPS: mistakes of a person who writes it again: key -> what is wrong. `slip` is the one made, '' for none.
    """

    SLIPS: ClassVar[dict[str, str]] = {}

    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip

    def inputs(self) -> tuple[Tensor, ...]:
        """Return inputs as they come in use, by torch's own generator."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Change the weights as a slip does that is one of loading them."""


def made(kind: type[Subject], slip: str = "") -> Subject:
    """Return the network with trained-looking weights: the same for each slip."""
    torch.manual_seed(0)
    net = kind(slip)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in sorted(net.state_dict().items()):
            if name.endswith("running_var"):
                tensor.copy_(torch.rand_like(tensor) * 0.1 + 0.01)
            elif tensor.is_floating_point():
                tensor.add_(torch.randn_like(tensor) * 0.15)
    net.prepare()
    return net.eval()
