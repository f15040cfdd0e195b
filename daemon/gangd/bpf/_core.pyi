# SPDX-License-Identifier: Apache-2.0
"""Handles over the distribution's libbpf (1.4 or newer); no policy, no threads, no output.

Conventions, for everything below:

- A call that libbpf or the kernel refuses raises BpfError. A name that the object does not
  have raises BpfError with errno ENOENT, and the message names the object and the name.
- A call in the wrong order (closed, not loaded yet, loaded already) or bytes of the wrong
  length raise ValueError.
- Keys and values are bytes in the machine's byte order, as gangd.bpf.abi packs them.
- Any thread may use any handle. load(), attach(), attach_struct_ops(), run() and detaching
  release the GIL. close() from another thread refuses new calls at once, lets those under way
  finish, and undoes what they attach.
"""

from typing import Any, Final, Self, final

from _typeshed import ReadableBuffer, StrPath

F_NOEXIST: Final[int]
"""Flag of Map.update(): fail with EEXIST instead of replacing."""
F_EXIST: Final[int]
"""Flag of Map.update(): fail with ENOENT instead of creating."""
F_LOCK: Final[int]
"""Flag of lookup(), update() and items(): under the value's struct bpf_spin_lock."""

class BpfError(OSError):
    """libbpf or the kernel refused. errno and strerror as in OSError.

    str() is one sentence: object, action, cause ("lhp: load: Permission denied").
    """

    log: str
    """All that libbpf said during the call, with the verifier log; "" when it said nothing.

    At most 4 MiB: of a longer log the end is kept, where the cause is.
    """

@final
class Object:
    """A BPF object file. Life: open (set knobs), load() once, attach or run, close().

    As a context manager it closes itself. Dropping the last reference to it, its maps and
    its links closes it, too.
    """

    def __new__(cls, path: StrPath | bytes, name: str | None = None) -> Self:
        """Open and parse an ELF file; nothing reaches the kernel before load().

        name is what the kernel shows and messages say; by default the file's name up to
        the first dot. BpfError when the file cannot be read or is no BPF object.
        """

    @property
    def name(self) -> str:
        """Name of the object; readable after close()."""

    def programs(self) -> list[str]:
        """Names of the programs (their C functions), in the file's order."""

    def maps(self) -> list[str]:
        """Names of the maps, including libbpf's own ("lhp.rodata", "lhp.bss")."""

    def set_autoload(self, prog: str, on: bool, /) -> None:
        """Whether load() loads this program. Only before load()."""

    def set_max_entries(self, map: str, entries: int, /) -> None:
        """Resize a map: 1 to 2^32 - 1 entries. Only before load()."""

    def rodata(self) -> bytes:
        """The section .rodata as load() will freeze it. BpfError ENOENT when there is none."""

    def set_rodata(self, data: ReadableBuffer, /) -> None:
        """Replace .rodata; data must have exactly its length. Only before load()."""

    def rodata_var(self, name: str, /) -> tuple[int, int]:
        """(offset, size) in bytes of a variable in .rodata, from the object's BTF."""

    def set_const(self, name: str, value: int, /) -> None:
        """Set a `const volatile` integer, bool or enum. Only before load().

        OverflowError when the value does not fit the C type, TypeError when the variable
        is not an integer.
        """

    def set_struct_ops(self, map: str, member: str, value: int, /) -> None:
        """Set an integer of a struct_ops map, or with 0 leave one of its functions out.

        A function left out is not loaded: for kernels that do not know it. Only before load();
        BpfError ENOENT when the object has no such member.
        """

    def share_map(self, map: str, /) -> bool:
        """Have load() use the newest map in the kernel of the same name, type and sizes, whosever it is.

        False when there is none: load() makes one. Only before load(); needs CAP_SYS_ADMIN.
        """

    def load(self) -> None:
        """Create the maps, load the programs.

        BpfError.log carries the verifier's log on failure. libbpf loads an object once:
        after a failure, open the file again.
        """

    def map(self, name: str, /) -> Map:
        """The map of that name; ".rodata" and ".bss" find the sections. Also before load()."""

    def attach(self, prog: str, /) -> Link:
        """Attach a program where its SEC() says. Detached when the Link goes away."""

    def attach_struct_ops(self, map: str, /) -> Link:
        """Register a struct_ops map (SEC(".struct_ops.link")), such as a scheduler."""

    def run(self, prog: str, ctx: ReadableBuffer = b"", /) -> int:
        """Run a SEC("syscall") program now, with a copy of ctx (at most 65535 bytes) as its context.

        Returns the program's own return value as a C int; BpfError only when the kernel
        did not run it.
        """

    def close(self) -> None:
        """Destroy all links, then free programs and maps. Again is a no-op.

        BpfError EBUSY while another thread is in load().
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *args: Any) -> None: ...

@final
class Map:
    """A map of an Object; unusable (ValueError) once the object is closed."""

    @property
    def name(self) -> str:
        """Name in the object file."""

    @property
    def type(self) -> str:
        """libbpf's word: "hash", "array", "percpu_array", "struct_ops", ..."""

    @property
    def key_size(self) -> int:
        """Bytes of a key."""

    @property
    def value_size(self) -> int:
        """Bytes of one value; of a per-CPU map, the value of one CPU."""

    @property
    def max_entries(self) -> int:
        """Capacity in entries."""

    @property
    def fd(self) -> int:
        """File descriptor; it belongs to the object. ValueError before load()."""

    def lookup(self, key: ReadableBuffer, /, flags: int = 0) -> bytes | None:
        """The value of a key, None when there is none.

        Of a per-CPU map: possible_cpus() values, each value_size rounded up to 8 bytes.
        """

    def update(self, key: ReadableBuffer, value: ReadableBuffer, /, flags: int = 0) -> None:
        """Create or replace an entry; a per-CPU map takes what lookup() returns.

        BpfError E2BIG when a hash map is full.
        """

    def delete(self, key: ReadableBuffer, /) -> bool:
        """Delete an entry; False when it was not there. BpfError EINVAL for arrays."""

    def keys(self) -> list[bytes]:
        """All keys, each once, in no particular order.

        Keys that others insert or delete meanwhile may be in or out. Ends after a number of
        steps bounded by max_entries, whatever they do.
        """

    def drain(self) -> bytes:
        """All records that a ring buffer has got since the last call, one after the other.

        Records of one CPU are in their order. BpfError EINVAL when the map is no ring buffer.
        """

    def items(self, flags: int = 0) -> list[tuple[bytes, bytes]]:
        """All (key, value) pairs, in batches where kernel and map type can, else one by one."""

@final
class Link:
    """Something attached. Destroyed by destroy(), by `with`, by dropping it, by Object.close()."""

    @property
    def attached(self) -> bool:
        """False once destroyed. An ejected scheduler stays "attached": ask the kernel."""

    def destroy(self) -> None:
        """Detach; returns when no new call of the program can start. Again is a no-op."""

    def fileno(self) -> int:
        """Its descriptor; what is attached stays so while a copy is open. ValueError once destroyed."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *args: Any) -> None: ...

def libbpf_version() -> tuple[int, int]:
    """(major, minor) of the library in use, which may be newer than the one built against."""

def possible_cpus() -> int:
    """Number of values in a per-CPU map's entry; not the number of CPUs online."""

def wait_for_readers() -> bool:
    """Wait until each RCU reader of now has left its section: membarrier(2), MEMBARRIER_CMD_GLOBAL. Releases
    the GIL. False if this kernel does not wait: it has nohz_full CPUs, or forbids the call.
    """

def detach_link(fd: int, /) -> None:
    """Detach the program or scheduler whose link another process made: bpf(2), BPF_LINK_DETACH. Releases the
    GIL; returns when it is out of use, and leaves the descriptor open. BpfError when it is detached already.
    """

def kernel_func_params(name: str, /) -> int | None:
    """Number of parameters of a kernel function or kfunc; a variadic "..." counts as one.

    None when the running kernel's BTF has no such function. Modules are not searched.
    Like the other kernel_ functions: BpfError when the kernel has no BTF. The BTF is parsed
    once (some milliseconds, some MB) and kept.
    """

def kernel_func_names(name: str, /) -> list[str] | None:
    """Names of the parameters of a kernel function, "" where one has none; None: no such function."""

def kernel_has_type(name: str, /) -> bool:
    """Whether the kernel's BTF has a struct, union, enum, typedef or base type of that name."""

def kernel_struct_members(name: str, /) -> list[str] | None:
    """Members of a struct or union in order, those of anonymous inner ones included; None: no such type."""

def kernel_enum_value(enum: str, name: str, /) -> int | None:
    """Value of an enumerator; None when the kernel lacks the enum or the name."""
