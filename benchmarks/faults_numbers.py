"""Faults inside the computation: signals in every phase, non-finite values, full memory, a lost GPU, a failing compiler."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from faults_workshop import Case, Finished, Outcome, Sandbox, expect, last_step, no_fault, patch, weights

STEPS = 20
TRAIN = ("train", "recipe.toml", "training.validate_every=10", "--run", "run", "--device", "cpu")
AT = 7  # the step of the fault; the checkpoint before it is step 5


def train(sandbox: Sandbox, fault: Callable[[], object], *overrides: str) -> Finished:
    sandbox.recipe(steps=STEPS)
    return sandbox.injected(fault, *TRAIN, *overrides)


def uninterrupted(sandbox: Sandbox) -> str:
    done = sandbox.injected(no_fault, *TRAIN[:-4], "--run", "whole", "--device", "cpu")
    assert done.code == 0, done.err
    return weights(sandbox.folder / "whole")


def continues(sandbox: Sandbox) -> bool:
    """Whether the same command ends with the weights of an uninterrupted run."""
    done = sandbox.injected(no_fault, *TRAIN)
    return done.code == 0 and weights(sandbox.folder / "run") == uninterrupted(sandbox)


def in_loss(change: Callable[[int, Any], Any]) -> None:
    """Replace the loss to minimize by change(call, loss)."""
    from heedful.training.loop import Trainer

    calls = 0

    def loss(trainer: Trainer, batch: Any) -> Any:
        nonlocal calls
        calls += 1
        objective = own(trainer, batch)
        return objective._replace(minimize=replace(objective.minimize, total=change(calls, objective.minimize.total)))

    own = patch(Trainer, "loss", loss)


def in_forward(act: Callable[[], object], at: int = AT) -> None:
    """Call act() before the forward pass of a step."""
    from heedful.training.loop import Trainer

    calls = 0

    def loss(trainer: Trainer, batch: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            act()
        return own(trainer, batch)

    own = patch(Trainer, "loss", loss)


def in_backward(act: Callable[[], object], at: int = AT) -> None:
    def change(call: int, total: Any) -> Any:
        if call == at:
            total.register_hook(lambda _: act())
        return total

    in_loss(change)


def in_step(act: Callable[[], object], at: int = AT) -> None:
    """After the optimizer has changed the weights, before the step is counted."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    calls = 0

    def after(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            act()

    register_optimizer_step_post_hook(after)


def in_validation(act: Callable[[], object]) -> None:
    """In the first validation."""
    from heedful.training.loop import Trainer

    calls = 0

    def score(trainer: Trainer) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            act()
        return own(trainer)

    own = patch(Trainer, "score", score)


PHASES = {"forward": in_forward, "backward": in_backward, "optimizer step": in_step, "validation": in_validation}


def stopped(phase: Callable[[Callable[[], object]], None], signals: tuple[signal.Signals, ...], sandbox: Sandbox) -> Outcome:
    def send() -> None:
        for number in signals:
            os.kill(os.getpid(), number)

    done = train(sandbox, lambda: phase(send))
    stopped_at = last_step(sandbox.folder / "run")
    expected = 5 if len(signals) > 1 else 10 if phase is in_validation else AT
    return expect(done, 75, also=stopped_at == expected and continues(sandbox))


def skipped_updates(sandbox: Sandbox) -> int:
    lines = (sandbox.folder / "run" / "metrics.jsonl").read_text().splitlines()
    return max(int(json.loads(line).get("skipped", 0)) for line in lines)


def bad_loss(value: float, sandbox: Sandbox) -> Outcome:
    done = train(sandbox, lambda: in_loss(lambda call, total: total * value if call == AT else total))
    return expect(done, 0, also=skipped_updates(sandbox) == 1 and all_finite(sandbox))


def spike(sandbox: Sandbox) -> Outcome:
    done = train(sandbox, lambda: in_loss(lambda call, total: total * 100 if call == AT else total))
    return expect(done, 0, also=skipped_updates(sandbox) == 0 and all_finite(sandbox))


def always_bad(sandbox: Sandbox) -> Outcome:
    change = lambda call, total: total * float("nan") if call >= AT else total  # noqa: E731
    done = train(sandbox, lambda: in_loss(change), "training.max_nonfinite_steps=5")
    return expect(done, 5, also=last_step(sandbox.folder / "run") <= 10 and all_finite(sandbox))


def poison_sentence(sandbox: Sandbox) -> Outcome:
    """The loss of every batch with one sentence is NaN, once in each epoch."""

    def poison() -> None:
        from heedful.training.loop import Trainer

        poisoned = list[int]()

        def loss(trainer: Trainer, batch: Any) -> Any:
            sentences = [[token for token in row if token] for row in batch.source.tolist()]
            poisoned.extend([] if poisoned else sentences[0])
            objective = own(trainer, batch)
            factor = float("nan") if poisoned in sentences else 1.0
            return objective._replace(minimize=replace(objective.minimize, total=objective.minimize.total * factor))

        own = patch(Trainer, "loss", loss)

    done = train(sandbox, poison)
    return expect(done, 0, also=skipped_updates(sandbox) >= 2 and all_finite(sandbox))


def bad_gradient(sandbox: Sandbox) -> Outcome:
    """One number of the gradient of one parameter is NaN."""

    def poison() -> None:
        from heedful.training import loop

        calls = 0

        def apply_gradients(model: Any, *arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == AT:
                next(p.grad for p in model.parameters() if p.grad is not None).view(-1)[0] = float("nan")
            return own(model, *arguments)

        own = patch(loop, "apply_gradients", apply_gradients)

    done = train(sandbox, poison)
    return expect(done, 0, also=skipped_updates(sandbox) == 1 and all_finite(sandbox))


def bad_metric(sandbox: Sandbox) -> Outcome:
    """The first validation gives NaN: a later, finite one is better."""

    def poison() -> None:
        from heedful.training.loop import Trainer

        calls = 0

        def score(trainer: Trainer) -> Any:
            nonlocal calls
            calls += 1
            validation = own(trainer)
            if calls == 1:
                trainer.metrics = {name: float("nan") for name in trainer.metrics}
            return validation

        own = patch(Trainer, "score", score)

    done = train(sandbox, poison)
    best = (sandbox.folder / "run" / "checkpoints" / "best").readlink().name
    return expect(done, 0, also=best == f"step-{STEPS}")


def all_finite(sandbox: Sandbox) -> bool:
    from safetensors.torch import load_file

    folders = [path for path in (sandbox.folder / "run" / "checkpoints").glob("step-*") if path.is_dir()]
    found = [load_file(folder / "model.safetensors") for folder in folders]
    return bool(found) and all(tensor.isfinite().all() for tensors in found for tensor in tensors.values())


def out_of_memory() -> None:
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.")


def memory_in_training(sandbox: Sandbox) -> Outcome:
    done = train(sandbox, lambda: in_forward(out_of_memory))
    splits = (sandbox.folder / "run" / "splits.jsonl").read_text()
    return expect(done, 0, also=splits == f'{{"step": {AT}, "parts": 2}}\n')


def memory_in_validation(sandbox: Sandbox) -> Outcome:
    """At step 10, after five updates since the last checkpoint."""
    done = train(sandbox, lambda: in_validation(out_of_memory), "training.save_every=20")
    kept = last_step(sandbox.folder / "run")
    again = sandbox.injected(no_fault, *TRAIN, "training.save_every=20")
    whole = sandbox.injected(no_fault, *TRAIN[:-4], "training.save_every=20", "--run", "whole", "--device", "cpu")
    same = weights(sandbox.folder / "run") == weights(sandbox.folder / "whole")
    return expect(done, 6, message="memory is full", also=kept == 10 and again.code == whole.code == 0 and same)


def memory_in_search(sandbox: Sandbox) -> Outcome:
    def fail() -> None:
        from heedful.search.engine import Engine

        patch(Engine, "step", lambda engine: out_of_memory())

    sandbox.trained_run_copy()
    done = sandbox.injected(fail, "translate", "run", "source.txt", "--device", "cpu")
    return expect(done, 6, message="smaller beam")


def lost_gpu(command: tuple[str, ...], sandbox: Sandbox) -> Outcome:
    """As torch reports it; the message continues with advice for debugging kernels."""

    def lose() -> None:
        import torch

        raise torch.AcceleratorError(
            "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported at some "
            "other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
        )

    if command[0] == "train":
        done = train(sandbox, lambda: in_forward(lose))
        return expect(done, 75, message="uncorrectable ECC error", also=continues(sandbox))

    def fail() -> None:
        from heedful.search.engine import Engine

        patch(Engine, "step", lambda engine: lose())

    sandbox.trained_run_copy()
    return expect(sandbox.injected(fail, *command), 75, message="uncorrectable ECC error")


def failing_compiler(sandbox: Sandbox) -> Outcome:
    """The compiler of C++ code exits with 1."""
    sandbox.environment |= {"CXX": "/bin/false", "TORCHINDUCTOR_CACHE_DIR": str(sandbox.folder / "inductor")}
    sandbox.recipe(steps=STEPS)
    command = [sys.executable, "-m", "heedful", *TRAIN, "training.compile=true"]  # the compiler's threads do not survive a fork
    done = sandbox.finish(sandbox.spawn(command), limit=600)
    return expect(done, 0, message="continuing without it", also=weights(sandbox.folder / "run") == uninterrupted(sandbox))


RESUMED = "exit 75, and the same command ends with the weights of an uninterrupted run"
SKIPPED = "the update is skipped and counted; exit 0, finite weights"
NAN, INF = float("nan"), float("inf")
CASES = [
    *(Case(3, f"SIGTERM in the {name}", RESUMED, partial(stopped, phase, (signal.SIGTERM,))) for name, phase in PHASES.items()),
    Case(3, "SIGINT in the forward", RESUMED, partial(stopped, in_forward, (signal.SIGINT,))),
    Case(3, "SIGTERM twice in the forward", f"at once: {RESUMED}", partial(stopped, in_forward, (signal.SIGTERM,) * 2)),
    Case(8, "the loss of one update is NaN", SKIPPED, partial(bad_loss, NAN)),
    Case(8, "the loss of one update is infinite", SKIPPED, partial(bad_loss, INF)),
    Case(8, "one number of one gradient is NaN", SKIPPED, bad_gradient),
    Case(8, "one sentence gives a NaN loss in every epoch", SKIPPED, poison_sentence),
    Case(8, "the loss of one update is 100 times larger", "the gradient is clipped; exit 0, finite weights", spike),
    Case(8, "every loss is NaN", "exit 5, the last good checkpoint is kept", always_bad),
    Case(8, "the metrics of the first validation are NaN", "a later checkpoint is the best", bad_metric),
    Case(9, "out of memory in an update", "the batch is split and the split recorded; exit 0", memory_in_training),
    Case(9, "out of memory in a validation", "exit 6; the updates so far are saved, and the same command continues",
         memory_in_validation),
    Case(9, "out of memory in beam search", "exit 6 with advice", memory_in_search),
    Case(19, "train, the GPU fails", RESUMED, partial(lost_gpu, ("train",))),
    Case(19, "translate, the GPU fails", "exit 75, one sentence",
         partial(lost_gpu, ("translate", "run", "source.txt", "--device", "cpu"))),
    Case(20, "train, torch.compile fails", "one notice, eager mode, identical weights", failing_compiler),
]  # fmt: skip
