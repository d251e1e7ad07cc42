import subprocess
import sys


def test_the_client_library_is_loaded_by_its_adapter_only() -> None:
    script = "import sys, combee, combee.ports, combee.adapters; print('openai' in sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert loaded.stdout.strip() == "False"
