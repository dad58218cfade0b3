"""Several servers of one folder: each answers for the tasks of all."""

from pathlib import Path

import pytest

from orchestrator.backends import journals_at
from tests.mcp.server_kit import Rpc
from tests.server.test_folder_server import WORKER, Disk, serving

pytestmark = pytest.mark.realtime


async def test_a_task_is_found_at_every_server_of_a_folder(tmp_path: Path) -> None:
    journals = journals_at(f"{tmp_path / 'runs'}/")
    async with serving(journals, Disk()) as one, serving(journals, Disk()) as other:
        here, there = Rpc(http=one.http), Rpc(http=other.http)
        id_ = (await here.call(WORKER.name, goal="go"))["taskId"]
        done = await there.until(id_, "completed")
        tree = await there.ask("resources/read", uri=f"run://{id_}/tree.txt")
        await there.ask("tasks/cancel", taskId=id_)
        joined = await Rpc(http=other.http, can_poll=False).call(WORKER.name, goal="go")
        listed = await here.ask("resources/list")

    assert done["result"]["isError"] is False
    assert WORKER.name in tree["contents"][0]["text"]
    assert joined["isError"] is False
    assert len(listed["resources"]) == 2
