"""Every semi-private call into PyTorch that the runtime makes (torch 2.11 to 2.13)."""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch._inductor
import torch._inductor.config
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._inductor import standalone_compile, virtualized
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key
from torch._inductor.standalone_compile import CompiledArtifact
from torch._inductor.triton_bundler import TritonBundler
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

# A size of a fake tensor: a plain integer, or symbolic.
Size: TypeAlias = int | torch.SymInt

# A compiled function, called with one list that it empties.
Boxed: TypeAlias = Callable[[list[Any]], Sequence[Any]]

# An example size: large enough that 0 and 1 are not at issue.
USUAL_SIZE = 16

# One compilation at a time in a process. It is the lock of Dynamo, whose backends may
# load modules while they hold it: a second one would be taken in both orders.
COMPILING = compile_lock

# Seconds that worker processes may take until they compile.
WORKERS_START = 120


class FakeWorld:
    """Fake tensors in which each named dimension is one symbol, the same everywhere.

    `hints` are example sizes, at least 2: where the compiler has a choice that depends
    on a size, it chooses for these, and says so in `guards()`.
    """

    def __init__(
        self, dimensions: Sequence[str], hints: Mapping[str, int] | None = None
    ) -> None:
        self.environment = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(
            shape_env=self.environment, allow_non_fake_inputs=True
        )
        self.sizes: dict[str, Size] = {}
        self._symbols: dict[Any, Any] = {}
        for name in dimensions:
            seed = torch.empty((hints or {}).get(name, USUAL_SIZE), device="meta")
            context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
            fake = self.mode.from_tensor(
                seed, source=ConstantSource(name), symbolic_context=context
            )
            self.sizes[name] = fake.shape[0]
            self._symbols[fake.shape[0].node.expr] = name  # type: ignore[attr-defined]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run operations on fake tensors, composite ones taken apart symbolically."""
        with torch.no_grad(), enable_python_dispatcher(), self.mode:
            yield

    def written(self, size: Size) -> int | str:
        """A size as text over the names of dimensions; a static size is an integer."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        return self._text(expression)

    def value(self, written: int | str) -> Size:
        """The size that `written` gave as text, in this world."""
        if isinstance(written, int):
            return written
        size: Size = eval(written, {**SIZE_FUNCTIONS, **self.sizes})
        return size

    def fixed(self) -> dict[str, str]:
        """Named dimensions that operations have tied to one value or to each other."""
        return {
            self._symbols[symbol]: self._text(value)
            for symbol, value in self.environment.replacements.items()
            if symbol in self._symbols
        }

    def guards(self) -> list[str]:
        """What was assumed of the named dimensions, as Python conditions over them."""
        assumed = [self._text(guard.expr) for guard in self.environment.guards]
        for checks in self.environment.deferred_runtime_asserts.values():
            assumed += [self._text(check.expr) for check in checks]
        assumed += [f"Eq({name}, {value})" for name, value in self.fixed().items()]
        return list(dict.fromkeys(assumed))

    def _text(self, expression: Any) -> str:
        # A symbol of PyTorch's own kind, so that sympy need not be imported here.
        names = {symbol: type(symbol)(name) for symbol, name in self._symbols.items()}
        return str(expression.xreplace(names))


def _true_division_is_exact(dividend: int, divisor: int) -> int:
    quotient, rest = divmod(dividend, divisor)
    if rest:
        raise ArithmeticError(f"{divisor} does not divide {dividend}")
    return quotient


# What PyTorch's expressions of sizes may hold, for `eval` of their text.
SIZE_FUNCTIONS: Mapping[str, Any] = {
    "__builtins__": {},
    "Eq": lambda left, right: left == right,
    "Ne": lambda left, right: left != right,
    "Mod": lambda left, right: left % right,
    "PythonMod": lambda left, right: left % right,
    "FloorDiv": lambda left, right: left // right,
    "CleanDiv": _true_division_is_exact,
    "Max": lambda *values: max(values),
    "Min": lambda *values: min(values),
}


def compile_graph(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], world: FakeWorld
) -> bytes:
    """Compile `graph` for fake `inputs` of `world`; the artifact as bytes.

    What the compiler assumes of sizes is then in `world.guards()`. It must be found out
    every time: PyTorch's own caches give back graphs without what they assumed.
    """
    configuration: Any = torch.compiler.config
    with (
        torch.no_grad(),
        tracing(TracingContext(world.mode)),
        configuration.patch(cache_key_tag=uuid.uuid4().hex),
    ):
        artifact = standalone_compile(
            graph, list(inputs), dynamic_shapes="from_tracing_context", aot=True
        )
    with tempfile.TemporaryDirectory(prefix="dfsc-") as folder:
        path = Path(folder) / "artifact"
        artifact.save(path=str(path))
        return path.read_bytes()


def hash_triton_ahead(device: torch.device) -> None:
    """Let Triton hash its files on a thread, where kernels of `device` are its own.

    Their cache is asked for them by this hash. It takes a while, most of it without
    Python's lock, and is kept.
    """
    if device.type != "cpu" and HAS_TRITON:
        threading.Thread(target=triton_key, name="triton_key", daemon=True).start()


@contextmanager
def waiting_for_kernels(meanwhile: Callable[[], None]) -> Iterator[None]:
    """Call `meanwhile` wherever Inductor is about to wait for kernels in this thread.

    All of them are compiled by its worker processes then. By itself Inductor compiles
    kernels in this process, one after the other, for the seconds that its workers take
    to start: the better choice for who has nothing else to do.
    """
    thread = threading.get_ident()
    wait = AsyncCompile.wait
    use_process_pool = AsyncCompile.__dict__["use_process_pool"]

    def wait_later(compiling: AsyncCompile, scope: dict[str, Any]) -> None:
        if threading.get_ident() == thread:
            meanwhile()
            _await_workers(AsyncCompile._ready_future)
        wait(compiling, scope)

    def use_workers(cls: type[AsyncCompile]) -> bool:
        ready: bool = use_process_pool.__func__(cls)  # starts them, where any may be
        here = threading.get_ident() == thread
        return cls._ready_future is not None if here else ready

    patched: Any = AsyncCompile
    patched.wait = wait_later
    patched.use_process_pool = classmethod(use_workers)
    try:
        yield
    finally:
        patched.wait = wait
        patched.use_process_pool = use_process_pool


def _await_workers(started: Future[Any] | None) -> None:
    """Raise RuntimeError where workers that were started do not come up."""
    if started is None:
        return
    try:
        started.result(timeout=WORKERS_START)
    except TimeoutError as error:
        raise RuntimeError(
            f"Inductor's compile workers did not start within {WORKERS_START} seconds; "
            "TORCHINDUCTOR_COMPILE_THREADS=1 does without them"
        ) from error


@contextmanager
def apart() -> Iterator[None]:
    """Let a compilation begin while another one is under way on this thread.

    Inductor keeps which graph it compiles for each thread, and the kernels that belong
    to its artifact in one place.
    """
    bundler: Any = TritonBundler
    names = ("_entries", "_static_autotuners", "_winners")
    lists = {name: getattr(bundler, name) for name in names if hasattr(bundler, name)}
    own = vars(virtualized.threadlocal)
    before = dict(own)
    own.clear()
    for name in lists:
        setattr(bundler, name, None)
    try:
        with tracing(None):
            yield
    finally:
        for name, kernels in lists.items():
            setattr(bundler, name, kernels)
        own.clear()
        own.update(before)


def load_artifact(content: bytes) -> Boxed:
    """The function of an artifact that `compile_graph` gave."""
    with tempfile.TemporaryDirectory(prefix="dfsc-") as folder:
        path = Path(folder) / "artifact"
        path.write_bytes(content)
        artifact = CompiledArtifact.load(path=str(path))
    function = getattr(getattr(artifact, "inner_fn", None), "compiled_fn", None)
    boxed = getattr(function, "__wrapped__", None)
    # A loaded artifact only packs its arguments into the list that this takes.
    if boxed is not None and hasattr(boxed, "serialize"):
        return getattr(boxed, "compiled_fn", boxed)  # type: ignore[no-any-return]

    def call(arguments: list[Any]) -> Sequence[Any]:
        result: Sequence[Any] = artifact(*arguments)
        return result

    return call


def without_wrapper(boxed: Boxed, outputs: int) -> Boxed:
    """The generated code itself, for a function whose outputs are all new tensors.

    The wrapper around it puts aliases together and applies writes that the compiler
    took out of the graph. Where outputs alias nothing and the code returns as many
    tensors as the function, there is neither, and the wrapper would only cost time.
    Gives `boxed` back where that is not certain.
    """
    found: Any = boxed
    while found is not None and not hasattr(found, "current_callable"):
        found = getattr(found, "__wrapped__", None)
    strides = getattr(found, "output_strides", None)
    inner = getattr(found, "current_callable", None)
    if inner is None or strides is None or len(strides) != outputs:
        return boxed
    return inner  # type: ignore[no-any-return]


def compiler_identity(device: torch.device) -> str:
    """Everything beside the graph that an artifact depends on."""
    words = [torch.__version__, torch.version.git_version, device.type]
    if device.type == "cpu":
        # Kernels are made for one instruction set and one number of threads.
        words.append(platform.machine())
        words.append(torch.backends.cpu.get_cpu_capability())
        words.append(str(torch.get_num_threads()))
    else:
        words.append(torch.cuda.get_device_name(device))
        words.append(".".join(map(str, torch.cuda.get_device_capability(device))))
    configuration: Any = torch._inductor.config
    words.append(configuration.get_hash().hex())
    return " ".join(map(str, words))


@contextmanager
def inductor_cache(folder: Path) -> Iterator[None]:
    """Let Inductor keep its kernels in `folder`, unless the user said where.

    Artifacts of the CPU name kernels that are only there, so the two belong together.

    The variable, and what Inductor keeps in one place for the compilation at hand, are
    of the process: `torch.compile` on another thread waits meanwhile, or is waited for.
    Its own lock is the only one, since its backend may come here holding it.
    """
    variable = "TORCHINDUCTOR_CACHE_DIR"
    with COMPILING:
        before = os.environ.get(variable)
        # Inductor itself sets the variable to its default when it is first used.
        if before is not None and before != default_cache_dir():
            yield
            return
        os.environ[variable] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ[variable]
            else:
                os.environ[variable] = before
