"""The image: what is in it, who it runs as, and what it may write to."""

import pytest

from support.compose import Deployment

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def image(built: Deployment) -> str:
    return built.env["COMBEE_IMAGE"]


def in_a_container(built: Deployment, *command: str) -> str:
    return built.docker("run", "--rm", "--entrypoint", command[0], built.env["COMBEE_IMAGE"], *command[1:])


def test_it_runs_as_nobody_in_particular(built: Deployment, image: str) -> None:
    user = built.docker("image", "inspect", "-f", "{{.Config.User}}", image)

    assert int(user) >= 10_000
    assert in_a_container(built, "id", "-u") == user


def test_its_file_system_may_be_read_only_and_it_needs_no_privilege(built: Deployment, image: str) -> None:
    limits = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none")
    said = built.docker("run", "--rm", *limits, image, "topics", "acls", "--format", "json")

    assert said.startswith(("[", "{"))


def test_nothing_of_it_belongs_to_its_user(built: Deployment) -> None:
    search = "find / -xdev -uid 10001 -not -path '/proc/*' | head"

    assert in_a_container(built, "sh", "-c", search) == ""


def test_it_has_no_build_tools_and_no_installer(built: Deployment) -> None:
    programs = in_a_container(built, "ls", "/opt/combee/bin").split()

    assert "combee" in programs
    assert not {program for program in programs if program.startswith(("pip", "hatch", "wheel"))}
    compilers = "for tool in gcc cc g++ make ld git; do command -v $tool; done; true"
    assert in_a_container(built, "sh", "-c", compilers) == ""


def test_its_code_is_compiled_so_that_a_read_only_start_is_quick(built: Deployment) -> None:
    count = "find /opt/combee -name '*.pyc' -path '*/combee/*' | wc -l"

    assert int(in_a_container(built, "sh", "-c", count)) > 100


def test_it_reads_whatever_agents_compress_with(built: Deployment) -> None:
    code = "from aiokafka import codec; print(codec.has_snappy(), codec.has_lz4(), codec.has_zstd())"

    assert in_a_container(built, "python", "-c", code) == "True True True"
