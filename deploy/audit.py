"""``make audit``: known vulnerabilities of what the locks pin, by pip-audit.

pip-audit passes over packages that its source does not tell about, and ends well. Here that is no pass: exit 0 means
that every package was looked up, 1 that a vulnerability is known, 2 that some or all could not be looked up.
"""

import json
import subprocess
import sys
from typing import Any

CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2
LOOK_UP_S = 900


def main(locks: list[str]) -> int:
    """Audit lock files; return the exit code."""
    arguments = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "-f", "json"]
    named = [word for lock in locks for word in ("-r", lock)]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *arguments, *named],
        capture_output=True,
        text=True,
        timeout=LOOK_UP_S,
        check=False,
    )
    try:
        code, lines = verdict(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        code, lines = (
            UNKNOWN,
            [f"not audited: the source of vulnerabilities cannot be reached ({reason[:300]})"],
        )
    sys.stdout.write("".join(f"audit: {line}\n" for line in lines))
    return code


def verdict(packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Return the exit code and what to say."""
    passed_over = [package for package in packages if "skip_reason" in package]
    known = [
        f"{package['name']} {package['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or '-'}"
        for package in packages
        for found in package.get("vulns", ())
    ]
    if passed_over:
        looked_up = len(packages) - len(passed_over)
        reason = passed_over[0]["skip_reason"]
        return UNKNOWN, [
            *known,
            f"{looked_up} of {len(packages)} packages were looked up, the others not: {reason}",
        ]
    return (VULNERABLE if known else CLEAN), known or [f"nothing is known against {len(packages)} packages"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
