"""Measure work on many samples: throughput beside plain sessions, memory, a cluster, workers that are killed.

`python scripts/samples.py cnn` (10,000 samples), `gpt2` (200), `cluster`, `scaling`, `kills`; `--count` for fewer,
`--rounds`.
Ratios of runs that alternate are printed, because a machine is rarely idle.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.runtime.cluster import workers_here

JOBS = 2


def cnn(folder: Path) -> tuple[Path, dict[str, list[int | str]]]:
    """Write a CNN of about 5 ms, and return the shapes of its inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2)):
        layers += [nn.Conv2d(before, after, 3, stride, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)).eval()
    path = folder / "cnn.onnx"
    torch.onnx.export(net, (torch.zeros(1, 3, 64, 64),), path, external_data=False, verbose=False)
    return path, {"x": [1, 3, 64, 64]}


def gpt2(folder: Path) -> tuple[Path, dict[str, list[int | str]]]:
    """Write GPT-2's architecture, four layers of it."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = GPT2LMHeadModel(GPT2Config(n_layer=4, vocab_size=5000, use_cache=False))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.net(ids).logits

    path = folder / "gpt2.onnx"
    ids = torch.zeros(1, 64, dtype=torch.int64)
    torch.onnx.export(Logits().eval(), (ids,), path, verbose=False)
    return path, {"ids": [1, 64]}


def rows(path: Path, count: int, folder: Path) -> Path:
    """Store samples as rows of an archive."""
    rng, (name, shape) = np.random.default_rng(0), _input(path)
    made = rng.standard_normal((count, *shape[1:]), np.float32)
    if "gpt2" in path.name:
        made = rng.integers(0, 5000, (count, *shape[1:]))
    np.savez(folder / "rows.npz", **{name: made})
    return folder / "rows.npz"


def _input(path: Path) -> tuple[str, list[int]]:
    declared = osl.load(path).proto.graph.input[0]
    return declared.name, [d.dim_value for d in declared.type.tensor_type.shape.dim]


def plain(path: Path, archive: Path, part: int, parts: int) -> None:
    """Run a share of the samples in a session of onnxruntime alone, and compare with what it gave before."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    for row in np.load(archive)[name][part::parts]:
        session.run(None, {name: row[None]})


def by_hand(path: Path, archive: Path, jobs: int = JOBS) -> float:
    """Return the seconds that processes with plain sessions take; each sample runs in both models, as in `compare`."""
    context, start = multiprocessing.get_context("spawn"), time.perf_counter()
    for _ in range(2):
        workers = [
            context.Process(target=plain, args=(path, archive, n, jobs)) for n in range(jobs)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return time.perf_counter() - start


def ours(path: Path, archive: Path, **how: object) -> float:
    """Return the seconds that `compare` of a model with itself takes."""
    start = time.perf_counter()
    assert osl.compare_sets(path, path, archive, **how).match  # type: ignore[arg-type]
    return time.perf_counter() - start


def throughput(path: Path, archive: Path, rounds: int, **how: object) -> None:
    """Print our throughput as a share of that of plain sessions on the same cores, and how memory grew.

    The ratio of processor time is what two cores that are never idle would give: it holds on a busy machine, too.
    """
    peaks: list[int] = []
    stop = threading.Event()
    watcher = threading.Thread(target=watch, args=(peaks, stop))
    ratios = []
    for number in range(rounds):
        start = spent()
        theirs = by_hand(path, archive)
        middle = spent()
        if not number:
            watcher.start()
        mine = ours(path, archive, **({"jobs": JOBS} | how))
        ratios.append(theirs / mine)
        busy = middle - start, spent() - middle
        print(
            f"plain sessions {theirs:.1f} s, ours {mine:.1f} s, ratio {ratios[-1]:.2f};"
            f" of processor time {busy[0]:.1f} s, {busy[1]:.1f} s, ratio {busy[0] / busy[1]:.2f}",
            flush=True,
        )
    stop.set()
    watcher.join()
    thirds = [max(peaks[n * len(peaks) // 3 : (n + 1) * len(peaks) // 3] or [0]) for n in range(3)]
    print(f"median ratio {statistics.median(ratios):.2f}; own memory by thirds: {thirds} MB")


def spent() -> float:
    """Return the processor time of this process, and of those that it started and that ended."""
    every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in every)


def watch(peaks: list[int], stop: threading.Event) -> None:
    """Note this process's own memory, without what is mapped from files."""
    while not stop.wait(0.5):
        status = Path("/proc/self/status").read_text()
        peaks.append(int(status.split("RssAnon:")[1].split()[0]) // 1024)


def scaling(path: Path, archive: Path, rounds: int) -> None:
    """Print how much faster 2 and 4 workers are than one, and processes by hand than one of them."""
    counts = (1, 2, 4)
    for _ in range(rounds):
        found: dict[str, list[float]] = {"cluster": [], "by hand": []}
        for count in counts:
            found["by hand"].append(by_hand(path, archive, count))
            with workers_here(count) as cluster:
                found["cluster"].append(ours(path, archive, cluster=cluster.scheduler_address))
        for who, seconds in found.items():
            shown = ", ".join(
                f"{count}: {took:.1f} s ({seconds[0] / took:.2f}x)"
                for count, took in zip(counts, seconds, strict=True)
            )
            print(f"{who:8} {shown}", flush=True)


def kills(path: Path, archive: Path) -> None:
    """Print what it costs that a worker is killed every 5 seconds, and whether the answer stays."""
    with workers_here(JOBS) as cluster:
        address = cluster.scheduler_address
        ours(path, archive, cluster=address)  # warm
        found: dict[bool, list[float]] = {False: [], True: []}
        for kill in (False, True) * 2:
            stop = threading.Event()
            killer = threading.Thread(target=kill_now_and_then, args=(cluster, stop))
            if kill:
                killer.start()
            found[kill].append(ours(path, archive, cluster=address))
            stop.set()
            if kill:
                killer.join()
        calm, torn = (statistics.median(found[kill]) for kill in (False, True))
        print(f"calm {calm:.1f} s, a worker killed every 5 s {torn:.1f} s: {torn / calm - 1:+.0%}")


def kill_now_and_then(cluster: object, stop: threading.Event) -> None:
    """Kill one worker after the other."""
    number = 0
    while not stop.wait(5):
        workers = [w for w in cluster.workers.values() if w.pid]  # type: ignore[attr-defined]
        if workers:
            os.kill(workers[number % len(workers)].pid, signal.SIGKILL)
            number += 1


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cnn", "gpt2", "cluster", "scaling", "kills"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, _ = (gpt2 if asked.what == "gpt2" else cnn)(folder)
        archive = rows(path, asked.count or {"gpt2": 200}.get(asked.what, 10_000), folder)
        match asked.what:
            case "cluster":
                throughput(path, archive, asked.rounds, cluster="local")
            case "scaling":
                scaling(path, archive, asked.rounds)
            case "kills":
                kills(path, archive)
            case _:
                throughput(path, archive, asked.rounds)


if __name__ == "__main__":
    main()
