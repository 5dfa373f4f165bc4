"""A head for every view: plain softmax, or an additive angular margin; only training has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from ..exceptions import ParameterError
from .settings import ModernNetwork, NetworkSettings
from .tensors import Tensor, functional, nn, torch


def angular_margin_logits(cosines: Tensor, codes: Tensor, margin: float, scale: float) -> Tensor:
    """scale cos(theta + margin) for the true class, scale cos(theta) for the others.

    Beyond theta + margin = pi, where the cosine would rise again, the true class gets
    cos(theta) - margin sin(margin): the two pieces nearly meet and both fall.
    """
    index = codes.clamp(min=0)[:, None]
    own = cosines.gather(1, index)
    sine = torch.sqrt((1 - own * own).clamp(min=1e-7))
    turned = own * math.cos(margin) - sine * math.sin(margin)
    turned = torch.where(own > math.cos(math.pi - margin), turned, own - margin * math.sin(margin))
    return scale * cosines.scatter(1, index, turned)


def margin_views(network: ModernNetwork, classes: Mapping[str, int]) -> tuple[str, ...]:
    """The views that get an angular margin: those named, else the speaker, else the first."""
    if network.margin_views is not None:
        return network.margin_views
    return ("speaker",) if "speaker" in classes else tuple(classes)[:1]


class Heads(nn.Module):
    """Sum over views of weighted cross-entropies.

    ``forward`` gives the loss, and by view how many were right and how many had a label;
    a label of -1 is missing and costs nothing.
    """

    def __init__(self, network: NetworkSettings, width: int, classes: Mapping[str, int]) -> None:
        super().__init__()
        modern = network if isinstance(network, ModernNetwork) else None
        self.scale = modern.scale if modern else 1.0
        self.smoothing = modern.label_smoothing if modern else 0.0
        split = modern is not None and modern.split
        margins = margin_views(modern, classes) if modern else ()
        given = modern.loss_weights if modern else {}
        for name in (*given, *margins):
            if name not in classes:
                raise ParameterError(f"the network's settings name a view {name!r}; the labels have {list(classes)}")
        self.views = tuple(classes)
        self.margins = [modern.margin if modern and view in margins else None for view in classes]
        self.weights = [float(given.get(view, 1.0)) for view in classes]
        bounds = [round(k * width / len(classes)) for k in range(len(classes) + 1)]
        self.parts = [slice(a, b) if split else slice(0, width) for a, b in pairwise(bounds)]
        self.outputs = nn.ModuleList(
            nn.Linear(part.stop - part.start, count, bias=margin is None)
            for part, count, margin in zip(self.parts, classes.values(), self.margins, strict=True)
        )
        for output in self.outputs:
            assert isinstance(output, nn.Linear)
            nn.init.xavier_uniform_(output.weight)
            if output.bias is not None:
                nn.init.zeros_(output.bias)

    def logits(self, embedding: Tensor, codes: Tensor, k: int, margin_share: float) -> tuple[Tensor, Tensor]:
        """What view k's loss sees, and what decides whether it is right."""
        part, output = embedding[:, self.parts[k]], self.outputs[k]
        margin = self.margins[k]
        if margin is None:
            plain = output(part).float()
            return plain, plain
        assert isinstance(output, nn.Linear)
        cosines = functional.linear(functional.normalize(part.float()), functional.normalize(output.weight.float()))
        return angular_margin_logits(cosines, codes[:, k], margin * margin_share, self.scale), cosines

    def forward(self, embedding: Tensor, codes: Tensor, margin_share: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        total = embedding.new_zeros((), dtype=torch.float32)
        right, counted = [], []
        for k, weight in enumerate(self.weights):
            with torch.autocast(embedding.device.type, enabled=False):
                logits, decided = self.logits(embedding.float(), codes, k, margin_share)
            known = codes[:, k] >= 0
            lost = functional.cross_entropy(
                logits, codes[:, k], ignore_index=-1, reduction="sum", label_smoothing=self.smoothing
            )
            total = total + weight * lost / known.sum().clamp(min=1)
            right.append((decided.detach().argmax(dim=1) == codes[:, k]).sum())
            counted.append(known.sum())
        return total, torch.stack(right), torch.stack(counted)
