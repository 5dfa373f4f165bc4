"""One step of a training, and the same step recorded as a CUDA graph: small kernels then cost no launch each."""

from __future__ import annotations

from ...exceptions import ParameterError
from .extractor import Body
from .modern import Heads
from .settings import Training
from .tensors import Tensor, nn, torch

Inputs = tuple[Tensor, Tensor | None] | tuple[Tensor]
WARM_UP = 3


class Step:
    """Forward, backward, optimise; sums of losses and hits stay on the device until `sums` is asked."""

    def __init__(self, body: Body, heads: Heads, training: Training, device: torch.device) -> None:
        self.body, self.heads, self.training, self.device = body, heads, training, device
        self.mixed = training.precision == "bfloat16" or (training.precision == "auto" and device.type == "cuda")
        # a rate on the device is one that a recorded step can see change
        self.rate = torch.tensor(training.learning_rate, device=device) if device.type == "cuda" else None
        self.optimiser = new_optimiser(nn.ModuleList([body, heads]), training, device)
        self.loss = torch.zeros((), device=device)
        self.right = torch.zeros(len(heads.views), dtype=torch.int64, device=device)
        self.counted = torch.zeros_like(self.right)

    def set_rate(self, rate: float) -> None:
        if self.rate is not None:
            self.rate.fill_(rate)
        for group in self.optimiser.param_groups:
            group["lr"] = rate if self.rate is None else self.rate

    def start(self) -> None:
        """Begin an epoch."""
        self.body.train()
        self.heads.train()
        for total in (self.loss, self.right, self.counted):
            total.zero_()

    def __call__(self, inputs: Inputs, codes: Tensor, margin_share: float) -> None:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed, cache_enabled=False):
            embedding = self.body.embed(*inputs)
        loss, hits, known = self.heads(embedding, codes, margin_share)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if self.training.clip is not None:
            nn.utils.clip_grad_norm_([*self.body.parameters(), *self.heads.parameters()], self.training.clip)
        self.optimiser.step()
        self.loss += loss.detach()
        self.right += hits
        self.counted += known


class RecordedStep(Step):
    """A step whose batches all have one shape: after some real ones it is recorded, and then replayed."""

    def __init__(self, body: Body, heads: Heads, training: Training, device: torch.device) -> None:
        if device.type != "cuda":
            raise ParameterError(f"steps are recorded on a GPU only; the device is {device}")
        super().__init__(body, heads, training, device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = 0
        self.x = self.y = torch.empty(0)

    def __call__(self, inputs: Inputs, codes: Tensor, margin_share: float) -> None:
        if self.graph is not None:
            self.x.copy_(inputs[0])
            self.y.copy_(codes)
            self.graph.replay()
        elif self.warm < WARM_UP:
            side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(side):
                super().__call__(inputs, codes, margin_share)
            torch.cuda.current_stream(self.device).wait_stream(side)
            self.warm += 1
        else:
            self.x, self.y = inputs[0].clone(), codes.clone()
            self.optimiser.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                super().__call__((self.x,), self.y, margin_share)
            graph.replay()  # recording runs nothing
            self.graph = graph


def new_optimiser(model: nn.Module, training: Training, device: torch.device) -> torch.optim.Optimizer:
    """Weights decay; biases and normalisations do not."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": training.weight_decay}, {"params": others, "weight_decay": 0.0}]
    fused = device.type == "cuda"
    if training.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=training.learning_rate, momentum=training.momentum, fused=fused)
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=(training.momentum, 0.999), fused=fused)
