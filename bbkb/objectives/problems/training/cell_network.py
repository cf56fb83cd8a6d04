"""A network of stacked cells, built as in NAS-Bench-101 (Ying et al. 2019, section 2) but smaller,
for digits.

A stem (3×3 convolution, stride 2 if the image is larger than 16×16), then `stacks` of `cells`;
before every stack but the first a 2×2 max pooling halves the image and the channels double. Global
average pooling and a dense layer follow the last stack.

Within a cell, the channels of the output are divided evenly among the vertices with an edge into
it; any other vertex has as many channels as its widest successor. A vertex applies its operation to
the sum of its inputs. Inputs from other vertices are truncated to the number of its channels, and
the cell's input passes through a 1×1 convolution. The cell's output is the concatenation of its
inputs; an edge from input to output adds the input after a 1×1 convolution.

Importing this module imports PyTorch.
"""

import torch
from torch import Tensor, nn

from bbkb.objectives.problems.cells import CONVOLUTION, POOLING, Cell

LARGEST_SIDE = 16  # the largest side of the first cell's input, in pixels


class CellModule(nn.Module):
    """One cell with its own weights: (n, `before`, side, side) to (n, `after`, side, side)."""

    def __init__(self, cell: Cell, before: int, after: int) -> None:
        super().__init__()
        self.cell = cell
        self.channels = vertex_channels(cell, before, after)
        last = cell.vertices - 1
        self.projections = nn.ModuleDict(
            {str(v): _convolution(before, self.channels[v], 1) for u, v in cell.edges if u == 0}
        )
        self.operations = nn.ModuleList(
            _operation(name, self.channels[v]) for v, name in zip(range(1, last), cell.operations, strict=True)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (n, classes) of `images` (n, channels, height, width)."""
        last = self.cell.vertices - 1
        inputs: dict[int, Tensor] = {}
        for vertex in range(1, last):
            incoming = [
                self.projections[str(vertex)](images) if u == 0 else inputs[u][:, : self.channels[vertex]]
                for u in self.cell.before(vertex)
            ]
            inputs[vertex] = self.operations[vertex - 1](torch.stack(incoming).sum(dim=0))
        parts = [inputs[u] for u in self.cell.before(last) if u]
        if not parts:
            return self.projections[str(last)](images)
        output = torch.cat(parts, dim=1)
        return output + self.projections[str(last)](images) if 0 in self.cell.before(last) else output


def vertex_channels(cell: Cell, before: int, after: int) -> list[int]:
    """Return the number of channels of each vertex in a cell with `before` input and `after` output
    channels."""
    last = cell.vertices - 1
    channels = [before, *[0] * (last - 1), after]
    sharing = [u for u in cell.before(last) if u]
    for place, vertex in enumerate(sharing):
        channels[vertex] = after // len(sharing) + (place < after % len(sharing))
    for vertex in range(last - 1, 0, -1):
        if vertex not in sharing:
            channels[vertex] = max(channels[v] for u, v in cell.edges if u == vertex)
    return channels


def build_cell_network(cell: Cell, side: int, classes: int, channels: int, stacks: int, cells: int) -> nn.Sequential:
    """Return the untrained network: images (n, 1, side, side) to scores (n, classes)."""
    layers: list[nn.Module] = [_convolution(1, channels, 3, stride=2 if side > LARGEST_SIDE else 1)]
    before = channels
    for stack in range(stacks):
        after = channels * 2**stack
        if stack:
            layers.append(nn.MaxPool2d(2))
        for _ in range(cells):
            layers.append(CellModule(cell, before, after))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def _operation(name: str, channels: int) -> nn.Module:
    if name == POOLING:
        return nn.MaxPool2d(3, stride=1, padding=1)
    return _convolution(channels, channels, 3 if name == CONVOLUTION else 1)


def _convolution(before: int, after: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution that preserves or halves the size, with batch normalization and ReLU."""
    convolution = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())
