"""What is missing is named, all of it at once, with the command that installs it."""

from dataclasses import replace

import pytest

from devcluster import preflight
from devcluster.errors import DevclusterError
from devcluster.preflight import BUILD_PROGRAMS, NODE_PROGRAMS, TEST_PROGRAMS, Facts

COMPLETE = Facts(programs=frozenset({*NODE_PROGRAMS, *BUILD_PROGRAMS, "go", "buildah"}))


def test_a_complete_machine_has_no_problems() -> None:
    assert preflight.node_problems(COMPLETE) == ()
    assert preflight.build_problems(COMPLETE) == ()


@pytest.mark.parametrize(("program", "package"), [*NODE_PROGRAMS.items(), *BUILD_PROGRAMS.items()])
def test_every_missing_program_is_named_with_its_package(program: str, package: str) -> None:
    facts = replace(COMPLETE, programs=COMPLETE.programs - {program})
    (problem,) = preflight.node_problems(facts)
    assert program in problem.what
    assert problem.remedy == f"apt-get install --yes --no-install-recommends {package}"


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ("root", "root"),
        ("namespaces", "namespaces"),
        ("cgroups", "/sys/fs/cgroup"),
        ("bridge_plugin", "bridge"),
        ("go", "Go"),
    ],
)
def test_every_missing_ability_is_named(fact: str, words: str) -> None:
    (problem,) = preflight.node_problems(replace(COMPLETE, **{fact: False}))  # type: ignore[arg-type]  # all of them are booleans
    assert words in problem.what
    assert problem.remedy


def test_what_is_built_already_needs_no_tools_to_build_it() -> None:
    bare = replace(COMPLETE, go=False, programs=frozenset(NODE_PROGRAMS))
    assert preflight.node_problems(replace(bare, binaries_built=True, bases_built=True)) == ()
    assert len(preflight.node_problems(bare)) == 2


def test_another_system_than_linux_is_one_problem() -> None:
    (problem,) = preflight.node_problems(Facts(linux=False))
    assert "Linux" in problem.what


def test_one_error_names_all_problems_and_one_command_installs_all_packages() -> None:
    problems = preflight.node_problems(replace(COMPLETE, root=False, programs=COMPLETE.programs - {"runc", "nft"}))
    with pytest.raises(DevclusterError) as caught:
        preflight.check(problems, "the node driver")
    text = str(caught.value)
    assert "root" in text
    assert "`runc`" in text
    assert "apt-get install --yes --no-install-recommends nftables runc" in text


def test_no_image_builder_is_a_problem_of_building_only() -> None:
    facts = replace(COMPLETE, programs=COMPLETE.programs - {"buildah"})
    assert preflight.node_problems(facts) == ()
    assert preflight.packages_of(preflight.build_problems(facts)) == ("buildah",)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_the_client_of_an_engine_that_does_not_answer_builds_nothing(engine: str) -> None:
    """Seen on a machine with Docker's client and no daemon: nothing was installed, and the build failed."""
    facts = replace(COMPLETE, programs=COMPLETE.programs - {"buildah"} | {engine})
    assert preflight.packages_of(preflight.build_problems(facts)) == ("buildah",)
    assert preflight.build_problems(replace(facts, engines=frozenset({engine}))) == ()


def test_a_missing_pooler_or_browser_is_a_problem_of_the_tests_only() -> None:
    assert preflight.node_problems(COMPLETE) == ()
    assert preflight.packages_of(preflight.problems_of_tests(COMPLETE)) == ("chromium", "chromium-driver", "pgbouncer")
    complete = replace(COMPLETE, programs=COMPLETE.programs.union(TEST_PROGRAMS))
    assert preflight.problems_of_tests(complete) == ()


def test_what_a_release_and_the_proof_of_other_systems_need_is_asked_for_by_them_alone() -> None:
    everything = replace(COMPLETE, programs=COMPLETE.programs.union(TEST_PROGRAMS))
    assert (*preflight.node_problems(everything), *preflight.problems_of_tests(everything)) == ()
    of_release = preflight.packages_of(preflight.problems_of_releases(everything))
    assert of_release == ("binfmt-support", "g++-aarch64-linux-gnu", "qemu-user-static")
    assert preflight.packages_of(preflight.problems_of_world(everything)) == ("ipset", "iptables", "redis-server")


def test_kind_needs_itself_and_an_engine_that_answers() -> None:
    problems = preflight.kind_problems(has_kind=False, engine_answers=False, clients=())
    assert ["kind" in problems[0].what, "Docker" in problems[1].what] == [True, True]
    assert preflight.kind_problems(has_kind=True, engine_answers=True, clients=()) == ()
