"""Each sandbox backend holds real commands within its limits."""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import DefinitionError, Sandbox
from orchestrator.agents.sandbox.backend import SandboxBackend, TaskSandbox
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.agents.sandbox.detection import detect
from orchestrator.agents.sandbox.no_commands import NO_COMMANDS
from orchestrator.agents.sandbox.sandbox_exec import SandboxExec
from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer
from orchestrator.agents.tools.terminal.process_group import open_command
from orchestrator.agents.tools.terminal.process_tags import new_tag
from tests.orchestrator.commands_kit import running_in

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.skipif(sys.platform != "linux", reason="these are Linux's"),
]
PR_GET_DUMPABLE = 3
# Itself, and not a link in a folder that a command may not see.
PYTHON = os.path.realpath(sys.executable)


def backend_named(name: str) -> SandboxBackend:
    try:
        return detect(name).backend
    except DefinitionError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def wall(request: pytest.FixtureRequest) -> SandboxBackend:
    backend = backend_named(request.param)
    assert backend.is_wall
    return backend


@pytest.fixture(scope="module", params=["bubblewrap", "landlock", "none"])
def backend(request: pytest.FixtureRequest) -> SandboxBackend:
    return backend_named(request.param)


@pytest.fixture
def folder() -> Generator[Path]:
    """Not in `/tmp`, which every command may have for itself."""
    made = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".sandbox-"))
    (made / "work").mkdir()
    yield made
    shutil.rmtree(made)


def names_in(folder: Path) -> set[str]:
    return {it.name for it in folder.iterdir()}


async def run(command: str, folder: Path, backend: SandboxBackend, **more: Any) -> tuple[int, str]:
    """Run a command in the folder `work` of a folder."""
    placed = more.pop("placed", None)
    environ = more.pop("environ", {})
    sandbox = more.pop("sandbox", Sandbox()).at(folder / "work")
    place = TaskSandbox(
        backend=backend, sandbox=placed or sandbox, workspace=folder / "work", **more
    )
    async with open_command(
        command,
        cwd=folder / "work",
        environ={"PATH": os.environ["PATH"], "HOME": str(folder), **environ},
        sandbox=place,
        tag=new_tag(),
        output=OutputBuffer(),
    ) as process:
        code = await process.wait()
    return code, process.output.text()


async def test_a_command_writes_only_in_allowed_folders(folder: Path, wall: SandboxBackend) -> None:
    (folder / "outside").write_text("whole")
    (folder / "named").mkdir()
    command = (
        "echo in > inside; echo t > ${TMPDIR:-/tmp}/t && echo named > ../named/it;"
        "echo broken > ../outside; rm -f ../outside; mv ../outside x; ln ../outside y;"
        "echo > ../new; mkdir ../more"
    )

    await run(command, folder, wall, sandbox=Sandbox(write=["../named"]))

    assert (folder / "work" / "inside").read_text() == "in\n"
    assert (folder / "named" / "it").read_text() == "named\n"
    assert (folder / "outside").read_text() == "whole"
    assert names_in(folder) == {"work", "named", "outside"}


async def test_a_link_in_place_of_a_named_folder_leads_no_command_out(
    folder: Path, wall: SandboxBackend
) -> None:
    """The first command has made it: of a folder that was not there, and of one above another."""
    (folder / "outside" / "inner").mkdir(parents=True)
    (folder / "work" / "build" / "inner").mkdir(parents=True)
    placed = Sandbox(write=["cache", "build/inner"]).at(folder / "work")
    links = "ln -s ../outside cache; mv build old; ln -s ../outside build"

    await run(links, folder, wall, placed=placed)
    await run("touch cache/it build/inner/it here", folder, wall, placed=placed)

    assert (folder / "work" / "here").exists()
    assert names_in(folder / "outside") == {"inner"}
    assert names_in(folder / "outside" / "inner") == set()


async def test_a_link_in_place_of_a_repository_opens_no_folder(
    folder: Path, wall: SandboxBackend
) -> None:
    """A mount at a relative link is made at the target of the link."""
    outside = folder / "outside"
    outside.mkdir()
    for name in ("modules", "hgrc"):
        (outside / name).touch()
    await run("ln -s ../outside .git; ln -s ../outside .hg", folder, wall)

    code, _ = await run("touch .git/made .hg/made ../outside/made", folder, wall)

    assert code
    assert names_in(outside) == {"modules", "hgrc"}


@pytest.mark.parametrize("replaced", [".", ".git", ".git/config"])
def test_a_path_that_is_replaced_while_it_is_mounted_starts_no_command(
    folder: Path, replaced: str
) -> None:
    """Another command swaps the path with a link, after it was judged."""
    work, outside = Path(os.path.realpath(folder / "work")), folder / "outside"
    subprocess.run(["git", "init", "-q", work], check=True)
    shutil.copytree(work, outside)
    (outside / ".git" / "config").write_text("secret")
    place = TaskSandbox(backend=backend_named("bubblewrap"), sandbox=Sandbox(), workspace=work)
    command = ["/bin/sh", "-c", "cat .git/config; touch .git/made made"]

    launch = place.launch(command, cwd=work, environ={"PATH": os.defpath})
    path = Path(os.path.normpath(work / replaced))
    path.rename(folder / "moved")
    path.symlink_to(os.path.relpath(outside / replaced, path.parent))
    done = subprocess.run(
        launch.argv, env=launch.environ, pass_fds=launch.pass_fds, check=False, capture_output=True
    )
    for file in launch.pass_fds:
        os.close(file)

    assert done.returncode
    assert b"secret" not in done.stdout
    assert not [*outside.rglob("made")]


async def test_variables_of_the_loader_reach_a_command_and_not_its_sandbox(
    folder: Path, backend: SandboxBackend
) -> None:
    """An empty entry is the workspace, where a command could make a library."""
    variable = {"LD_LIBRARY_PATH": ":/nowhere"}
    place = TaskSandbox(backend=backend, sandbox=Sandbox(), workspace=folder / "work")

    launch = place.launch(["/bin/true"], cwd=folder, environ=variable)
    for file in launch.pass_fds:
        os.close(file)
    _, said = await run("echo $LD_LIBRARY_PATH", folder, backend, environ=variable)

    assert "LD_LIBRARY_PATH" not in launch.environ
    assert said == ":/nowhere\n"


async def test_a_link_in_place_of_a_readable_folder_reveals_no_file(
    folder: Path, wall: SandboxBackend
) -> None:
    (folder / "outside").mkdir()
    (folder / "outside" / "it").write_text("secret")
    placed = Sandbox(read=["data"]).at(folder / "work")

    await run("ln -s ../outside data", folder, wall, placed=placed)
    _, said = await run("cat data/it ../outside/it", folder, wall, placed=placed)

    assert "secret" not in said


async def test_a_command_neither_reads_nor_writes_the_terminals_of_the_user(
    folder: Path, wall: SandboxBackend
) -> None:
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"typed\n")
        name = os.ttyname(theirs)
        _, said = await run(f"echo fake > {name}; timeout 2 head -1 {name}", folder, wall)
        os.set_blocking(ours, False)
        assert "typed" not in said
        assert b"fake" not in os.read(ours, 100)
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_hidden_file_cannot_be_read_anywhere(folder: Path, wall: SandboxBackend) -> None:
    for name in ("state", "work/state"):
        (folder / name).mkdir()
        (folder / name / "journal.db").write_text("secret")
    (folder / "key").write_text("secret")
    hidden = tuple(folder / name for name in ("state", "work/state", "key"))

    _, said = await run(
        "cat ../state/journal.db state/journal.db ../key; cat ../key", folder, wall, hidden=hidden
    )

    assert "secret" not in said


async def test_only_the_workspace_of_a_hidden_folder_is_visible(
    folder: Path, wall: SandboxBackend
) -> None:
    """As a worktree is in the state folder."""
    (folder / "key").write_text("secret")

    code, said = await run("echo x > y && cat y ../key", folder, wall, hidden=(folder,))

    assert (folder / "work" / "y").exists()
    assert code
    assert "secret" not in said


async def test_a_sandbox_with_read_paths_shows_no_other_file(
    folder: Path, wall: SandboxBackend
) -> None:
    (folder / "other").write_text("secret")
    (folder / "named").write_text("named")

    code, said = await run(
        "cat ../named ../other", folder, wall, sandbox=Sandbox(read=["../named"])
    )

    assert code
    assert "named" in said
    assert "secret" not in said


@pytest.mark.parametrize("network", [False, True])
async def test_a_command_reaches_no_socket_unless_it_has_the_network(
    network: bool, folder: Path, wall: SandboxBackend
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        code, _ = await run(
            f"exec 3<>/dev/tcp/127.0.0.1/{port}", folder, wall, sandbox=Sandbox(network=network)
        )

    assert (code == 0) is network


async def test_a_command_reaches_no_service_of_the_machine(wall: SandboxBackend) -> None:
    """A socket has a path in `/run` or `/tmp`, or no path at all; and UDP needs no connection."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "work").mkdir()
        program = (
            "import socket\n"
            "for family, kind, address in [\n"
            f"    (socket.AF_UNIX, socket.SOCK_STREAM, {str(folder / 's')!r}),\n"
            f"    (socket.AF_UNIX, socket.SOCK_STREAM, '\\0' + {str(folder)!r}),\n"
            "    (socket.AF_INET, socket.SOCK_DGRAM, ('192.0.2.1', 9)),\n"
            "]:\n"
            "    try:\n"
            "        with socket.socket(family, kind) as it:\n"
            "            it.connect(address)\n"
            "        print('reached')\n"
            "    except OSError:\n"
            "        print('refused')\n"
        )
        with (
            closing(socket.socket(socket.AF_UNIX)) as by_path,
            closing(socket.socket(socket.AF_UNIX)) as abstract,
        ):
            by_path.bind(str(folder / "s"))
            abstract.bind("\0" + str(folder))
            by_path.listen()
            abstract.listen()
            _, said = await run(f'{PYTHON} -S -c "{program}"', folder, wall)

    assert said.split() == ["refused"] * 3


async def test_root_changes_no_setting_of_the_kernel(folder: Path, wall: SandboxBackend) -> None:
    """One of them is a command that the kernel runs, as root and outside."""
    code, _ = await run(": >> /proc/sys/kernel/core_pattern", folder, wall)

    assert code


async def test_a_sandbox_blocks_tcp_fast_open(folder: Path, wall: SandboxBackend) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = server.getsockname()
        (folder / "work" / "it.py").write_text(
            f"import socket\nsocket.socket().sendto(b'x', socket.MSG_FASTOPEN, {address})\n"
        )
        code, _ = await run(f"{PYTHON} -S it.py", folder, wall)

    assert code


async def test_a_sandbox_forbids_system_calls_that_no_namespace_confines(
    folder: Path, wall: SandboxBackend
) -> None:
    """Sockets of virtual machines, keyrings of the user, and io_uring, which makes sockets, too."""
    numbers = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}
    (folder / "work" / "it.py").write_text(
        "import ctypes, errno, socket\n"
        "call = ctypes.CDLL(None, use_errno=True).syscall\n"
        f"for number in {(*numbers[os.uname().machine], 425)}:\n"
        "    print(call(number, 0, -3, 1), errno.errorcode[ctypes.get_errno()])\n"
        "try: socket.socket(socket.AF_VSOCK)\n"
        "except OSError as exc: print(errno.errorcode[exc.errno])\n"
        "socket.socket(socket.AF_INET)\n"
    )

    code, said = await run(f"{PYTHON} it.py", folder, wall)

    assert (code, said.splitlines()) == (0, ["-1 ENOSYS"] * 4 + ["EPERM"])


async def test_the_limits_of_other_processes_are_not_changed(
    folder: Path, wall: SandboxBackend
) -> None:
    (folder / "work" / "it.py").write_text(
        f"import resource\nresource.prlimit({os.getpid()}, resource.RLIMIT_CORE, (0, 0))\n"
    )

    code, _ = await run(f"{PYTHON} -S it.py", folder, wall)
    own, _ = await run("ulimit -c 0", folder, wall)

    assert (bool(code), own) == (True, 0)


async def test_a_command_can_neither_signal_nor_read_other_processes(
    folder: Path, wall: SandboxBackend
) -> None:
    with subprocess.Popen(["sleep", "100"], env={"TOKEN": "secret"}) as other:  # noqa: ASYNC220
        _, said = await run(f"cat /proc/{other.pid}/environ; kill {other.pid}", folder, wall)
        try:
            assert other.poll() is None
            assert "secret" not in said
        finally:
            other.kill()


async def test_no_process_outlives_its_command_in_any_environment(
    folder: Path, backend: SandboxBackend
) -> None:
    await run(
        "env -u ORCHESTRATOR_PROCESS setsid sleep 300 & env -i setsid sleep 300 &"
        " (setsid sh -c 'env -i sleep 300 & exit' &)",
        folder,
        backend,
    )

    assert running_in(folder) == []


async def test_ending_a_command_ends_all_its_processes(
    folder: Path, backend: SandboxBackend
) -> None:
    place = TaskSandbox(backend=backend, sandbox=Sandbox(), workspace=folder / "work")
    lines, heard = trio.open_memory_channel[str](10)
    async with open_command(
        "trap '' TERM; env -i setsid sleep 300 & echo begun; sleep 300",
        cwd=folder / "work",
        environ={"PATH": os.environ["PATH"]},
        sandbox=place,
        tag=new_tag(),
        output=OutputBuffer(),
        on_line=lines.send_nowait,
        grace=0.1,
    ):
        assert await heard.receive() == "begun"

    assert running_in(folder) == []


async def test_a_command_is_limited_and_gets_no_new_rights(
    folder: Path, backend: SandboxBackend
) -> None:
    limits = Sandbox(cpu=100, memory=1 << 30, disk=1 << 20)
    code, said = await run(
        "grep NoNewPrivs /proc/self/status; ulimit -c; ulimit -t; ulimit -v;"
        " head -c 2000000 /dev/zero > big",
        folder,
        backend,
        sandbox=limits,
    )

    assert said.split()[:5] == ["NoNewPrivs:", "1", "0", "100", str(1 << 20)]
    assert code
    assert (folder / "work" / "big").stat().st_size == 1 << 20


async def test_the_environment_of_this_process_cannot_be_read_after_a_command(
    folder: Path, backend: SandboxBackend
) -> None:
    await run("true", folder, backend)

    # As root it can be read all the same: this is what holds for others.
    assert ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


async def test_settings_of_a_repository_and_own_code_are_read_only_in_bubblewrap(
    folder: Path,
) -> None:
    backend = backend_named("bubblewrap")
    work = folder / "work"
    (work / "deep").mkdir()
    (work / "deep" / "team.py").write_text("whole")
    subprocess.run(["git", "init", "--quiet", work], check=True)  # noqa: ASYNC221
    shutil.rmtree(work / ".git" / "hooks")
    before = (work / ".git" / "config").read_text()

    _, said = await run(
        "git add . && git -c user.name=a -c user.email=b commit -qm x && git log --format=%s;"
        "echo broken >> .git/config; mv .git other; mkdir -p .git/hooks; echo > .git/hooks/pre;"
        "echo > .git/info/attributes; echo broken > deep/team.py; mv deep elsewhere; rm -r deep",
        folder,
        backend,
        protected=(work / "deep" / "team.py",),
    )

    assert said.splitlines()[0] == "x"
    assert (work / ".git" / "config").read_text() == before
    assert list((work / ".git" / "hooks").iterdir()) == []
    assert not (work / ".git" / "info" / "attributes").exists()
    assert (work / "deep" / "team.py").read_text() == "whole"


async def test_a_command_cannot_redirect_the_settings_of_git(folder: Path) -> None:
    """By a `commondir` of its own making, or settings of the worktree where git reads them."""
    work, git_folder = folder / "work", folder / "work" / ".git"
    subprocess.run(["git", "init", "--quiet", work], check=True)  # noqa: ASYNC221
    with (git_folder / "config").open("a") as config:
        config.write("[extensions]\n\tworktreeConfig = true\n")

    _, said = await run(
        "git -c user.name=a -c user.email=b commit -qm x --allow-empty && git log --format=%s;"
        f"cp -r .git evil; git --git-dir=evil config core.fsmonitor 'touch {folder}/run; false';"
        "for it in commondir config.worktree; do"
        " rm -f .git/$it; echo ../evil > .git/$it; mv -f evil/config .git/$it; done",
        folder,
        backend_named("bubblewrap"),
    )
    looked = subprocess.run(["git", "status"], cwd=work, check=False)  # noqa: ASYNC221

    assert said.splitlines()[0] == "x"
    assert looked.returncode == 0
    assert not (folder / "run").exists()
    assert (git_folder / "commondir").read_text() == ".\n"
    assert (git_folder / "config.worktree").read_text() == ""


async def test_a_pipe_as_git_settings_does_not_block_a_command(folder: Path) -> None:
    bubblewrap = backend_named("bubblewrap")

    await run("git init -q . && rm .git/config && mkfifo .git/config", folder, bubblewrap)
    _, said = await run("echo runs", folder, bubblewrap)

    assert said == "runs\n"


@pytest.mark.parametrize("setting", ["core.worktree ../..", "core.bare true"])
async def test_a_repository_with_other_git_settings_is_not_changed(
    folder: Path, setting: str
) -> None:
    work = folder / "work"
    subprocess.run(["git", "init", "--quiet", work], check=True)  # noqa: ASYNC221
    subprocess.run(["git", "config", *setting.split()], cwd=work, check=True)  # noqa: ASYNC221

    await run("true", folder, backend_named("bubblewrap"))

    assert not (work / ".git" / "commondir").exists()


@pytest.mark.parametrize("made_by", ["task", "user"])
async def test_a_worktree_can_be_committed_and_other_worktrees_are_read_only(
    folder: Path, made_by: str
) -> None:
    """Settings of another worktree are commands that its owner runs."""
    git_folder = folder / "repository" / ".git"
    (folder / "work").rmdir()
    for command in (
        "init --quiet repository",
        "-C repository -c user.name=a -c user.email=b commit -qm x --allow-empty",
        "-C repository worktree add -q ../work",
        "-C repository worktree add -q ../other",
    ):
        subprocess.run(["git", *command.split()], cwd=folder, check=True)  # noqa: ASYNC221
    others = git_folder / "worktrees" / "other"
    options: dict[str, Any] = {
        "task": {"checkout": (folder / "work", git_folder, others.parent / "work")},
        "user": {"sandbox": Sandbox(write=[git_folder])},
    }

    _, said = await run(
        "git -c user.name=a -c user.email=b commit -qm y --allow-empty && git log -1 --format=%s;"
        f"cd {others.parent}; echo ../../.. > other/commondir; echo > other/config.worktree;"
        "mv other elsewhere; echo > work/commondir; mv work elsewhere; mv ../worktrees ../w",
        folder,
        backend_named("bubblewrap"),
        **options[made_by],
    )

    assert said.splitlines()[0] == "y"
    assert (others / "commondir").read_text() == "../..\n"
    assert not (others / "config.worktree").exists()
    assert names_in(others.parent) == {"work", "other"}
    assert (others.parent / "work" / "commondir").read_text() == "../..\n"


def test_landlock_is_no_wall_for_a_workspace_with_our_own_code(folder: Path) -> None:
    backend = backend_named("landlock")
    place = TaskSandbox(backend=backend, sandbox=Sandbox(), workspace=folder)
    own = folder / "team.py"

    assert place.is_wall
    assert not TaskSandbox(
        backend=backend, sandbox=Sandbox(), workspace=folder, protected=(own,)
    ).is_wall
    assert not TaskSandbox(
        backend=backend, sandbox=Sandbox(network=["example.com"]), workspace=folder
    ).is_wall


def test_the_strongest_working_backend_is_chosen_with_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    found = detect()

    assert found.backend.name in {"landlock", "none"}
    assert "bwrap" in found.refused["bubblewrap"]
    with pytest.raises(DefinitionError, match="bwrap"):
        detect("bubblewrap")


def test_a_program_that_only_looks_like_bubblewrap_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The detection runs it, and does not trust its name."""
    program = tmp_path / "bwrap"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --help ] && echo "--disable-userns --size " && exit\n'
        'while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(DefinitionError, match="outside"):
        detect("bubblewrap")


@pytest.mark.parametrize("entry", ["bin", "", "{here}/bin"])
def test_a_program_in_the_folder_of_the_process_is_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """A path such as `node_modules/.bin` is one that agents write."""
    found = backend_named("bubblewrap")
    (tmp_path / "bin").mkdir()
    for program in (tmp_path / "bin" / "bwrap", tmp_path / "bwrap"):
        program.write_text('#!/bin/sh\nexec bwrap "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{entry.format(here=tmp_path)}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    assert detect("bubblewrap").backend == found


def test_an_unknown_sandbox_backend_is_refused() -> None:
    with pytest.raises(DefinitionError, match="bubblewrap"):
        SandboxChoice("docker")
    with pytest.raises(DefinitionError, match="macOS"):
        detect("sandbox-exec")


async def test_a_task_without_command_tools_starts_no_command(folder: Path) -> None:
    with pytest.raises(Exception, match="machine"):
        await run("true", folder, NO_COMMANDS)


def test_a_profile_for_macos_names_all_that_is_held(folder: Path) -> None:
    """Read, and not run: there is no macOS here."""
    place = TaskSandbox(
        backend=SandboxExec("/usr/bin/sandbox-exec"),
        sandbox=Sandbox(read=[folder]),
        workspace=folder,
        hidden=(folder / 'a"b',),
        protected=(folder / "team.py",),
    )
    _, _, profile, *_ = place.launch(["/bin/sh"], cwd=folder, environ={}).argv

    assert not place.is_wall
    assert "(deny network*)" in profile
    assert f'(deny file-write* (subpath "{folder}/team.py"))' in profile
    assert 'a\\"b' in profile


async def test_a_process_has_a_memory_limit_by_default(
    folder: Path, backend: SandboxBackend
) -> None:
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 10

    _, said = await run("ulimit -d; ulimit -v", folder, backend)
    _, named = await run("ulimit -v", folder, backend, sandbox=Sandbox(memory=1 << 30))

    limit, address_space = said.split()
    assert whole // 2 < int(limit) < whole
    assert address_space == "unlimited"
    assert named.split() == [str(1 << 20)]


async def test_a_message_queue_of_the_user_is_hidden_in_bubblewrap_alone(
    folder: Path, wall: SandboxBackend
) -> None:
    """`docs/sandbox.md` names the gap of landlock: System V memory and queues are of the user."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = os.getpid()
    queue = libc.msgget(key, 0o1600)
    assert queue >= 0, os.strerror(ctypes.get_errno())
    look = f"{PYTHON} -c 'import ctypes; print(ctypes.CDLL(None).msgget({key}, 0))'"
    try:
        _, said = await run(look, folder, wall)
    finally:
        libc.msgctl(queue, 0, None)

    assert int(said) == (-1 if wall.name == "bubblewrap" else queue)
