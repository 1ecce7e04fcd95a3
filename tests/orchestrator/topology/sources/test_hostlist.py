from __future__ import annotations

import pytest

from orchestrator.topology.sources.hostlist import HostListError, expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("tux[0-3,12]", "tux0 tux1 tux2 tux3 tux12"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[1-3],m", "n1 n2 n3 m"),
        ("r[1-2]n[1-2]x", "r1n1x r1n2x r2n1x r2n2x"),
        ("n[0-6:3]", "n0 n3 n6"),
        ("n[0-7/4]", "n0 n4"),
        ("n[1,[3-4]]", "n1 n3 n4"),
        ("[1101-1102]", "1101 1102"),
        ("a b,,c ", "a b c"),
        ("rack[01,03]", "rack01 rack03"),
        ("n[a,b2]", "na nb2"),
        ("", ""),
    ],
)
def test_what_slurm_and_clustershell_write(text: str, hosts: str) -> None:
    assert expand_hosts(text) == hosts.split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n[1-", "ends inside a bracket"),
        ("n]", "closes a bracket that is not open"),
        ("n[3-1]", "the first number must not be larger"),
        ("n[]", "has an empty place"),
        ("n[1,]", "has an empty place"),
        ("n[1-4:0]", "steps by 0"),
        ("n[x-y]", "a number or a range"),
        ("n[1-999999999]", "names 999999999 nodes; at most 200000"),
        ("[0-9]" * 8, "names 100000000 nodes"),
        ("[0-9]" * 9, "more than 8 brackets"),
        ("n[[[[[1]]]]]", "nested deeper than 4"),
        ("n[0-9999999999999999999999]", "more than 18 digits"),
        ("n" * 300, "more than 253 characters"),
    ],
)
def test_what_is_no_host_list(text: str, words: str) -> None:
    with pytest.raises(HostListError) as refused:
        expand_hosts(text)
    assert words in str(refused.value)
