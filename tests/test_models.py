"""The model of the cluster protocol keeps its laws, where Spin and a compiler are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).parent.parent / "docs" / "models" / "check.sh"
INSTALLED = all(map(shutil.which, ("spin", "gcc")))


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="the model is NOT checked: apt-get install spin gcc")
def test_the_model_of_the_cluster_keeps_its_laws() -> None:
    done = subprocess.run([str(CHECK), "quick"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" holds ") == 2
