"""The operator's allow-list: what it lets through, and what it is told about mistakes."""

import pickle
from ipaddress import ip_address

import pytest

from noonbell.actions.egress import EgressPolicy
from noonbell.actions.egress.hosts import read_host
from noonbell.errors import EgressPolicyInvalidError, EgressRefusedError


def passes(policy: EgressPolicy, address: str, port: int, name: str | None = None) -> bool:
    try:
        policy.check(ip_address(address), port, read_host(name) if name else None)
    except EgressRefusedError:
        return False
    return True


@pytest.mark.parametrize(
    ("entry", "address", "port", "expected"),
    [
        ("10.0.0.0/8", "10.1.2.3", 1, True),
        ("10.0.0.0/8", "11.0.0.1", 80, True),
        ("10.0.0.0/8", "192.168.0.1", 80, False),
        ("10.0.0.7", "10.0.0.7", 65_535, True),
        ("10.0.0.7", "10.0.0.8", 80, False),
        ("10.0.0.7:8080", "10.0.0.7", 8080, True),
        ("10.0.0.7:8080", "10.0.0.7", 8081, False),
        ("[fd12::7]:8080", "fd12::7", 8080, True),
        ("[fd12::7]:8080", "fd12::7", 80, False),
        ("[fd12::7]", "fd12::7", 80, True),
        ("fd12::/16", "fd12::9", 80, True),
        ("::ffff:0:0/96", "127.0.0.1", 80, False),
        ("127.0.0.0/8", "::ffff:127.0.0.1", 80, False),
        ("0.0.0.0/0", "169.254.169.254", 80, False),
        ("::/0", "fd00:ec2::254", 80, False),
    ],
)
def test_an_entry_allows_what_it_names_and_nothing_else(entry: str, address: str, port: int, expected: bool) -> None:
    assert passes(EgressPolicy(allow=(entry,)), address, port) is expected


def test_a_name_is_allowed_on_its_port_whatever_it_resolves_to() -> None:
    policy = EgressPolicy(allow=("Hooks.internal.:8080",))
    assert passes(policy, "10.0.0.1", 8080, "hooks.internal")
    assert not passes(policy, "10.0.0.1", 8081, "hooks.internal")
    assert not passes(policy, "10.0.0.1", 8080, "other.internal")
    assert not passes(policy, "10.0.0.1", 8080)
    assert not passes(policy, "169.254.169.254", 8080, "hooks.internal")


def test_both_layers_may_be_allowed() -> None:
    mapped = "::ffff:10.0.0.1"
    assert passes(EgressPolicy(allow=("::ffff:0:0/96", "10.0.0.0/8")), mapped, 80)
    assert not passes(EgressPolicy(allow=("::ffff:0:0/96",)), mapped, 80)


@pytest.mark.parametrize("name", ["metadata.google.internal", "METADATA.google.internal.", "metadata", "instance-data"])
def test_names_of_metadata_are_refused(name: str) -> None:
    with pytest.raises(EgressRefusedError, match="never"):
        EgressPolicy(allow=("0.0.0.0/0",)).check_host(read_host(name))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("10.0.0.1/8", "host bits"),
        ("10.0.0.0/33", "is not a network"),
        ("hooks.internal", "hooks.internal:443"),
        ("hooks.internal:", "1 to 65535"),
        ("hooks.internal:http", "1 to 65535"),
        ("10.0.0.1:0", "1 to 65535"),
        ("10.0.0.1:70000", "1 to 65535"),
        ("127.1:80", "odd notation"),
        ("http://hooks.internal/", "is not a network"),
        ("", "1 to 253"),
        ("169.254.169.254", "metadata"),
        ("169.254.169.254:80", "metadata"),
        ("metadata.google.internal:80", "metadata"),
        (None, "must be a text"),
    ],
)
def test_a_bad_entry_is_told_with_what_would_be_right(entry: str, says: str) -> None:
    with pytest.raises(EgressPolicyInvalidError, match=says) as caught:
        EgressPolicy(allow=(entry,))
    assert caught.value.field == "allow"
    assert caught.value.value == entry


def test_one_text_instead_of_a_list_is_an_error() -> None:
    with pytest.raises(EgressPolicyInvalidError, match="must be a list"):
        EgressPolicy(allow="10.0.0.0/8")  # type: ignore[arg-type]  # the mistake that the check is for


def test_a_proxy_is_checked_and_its_password_not_shown() -> None:
    policy = EgressPolicy(proxy="http://me:hunter2@10.0.0.3:3128")
    assert passes(policy, "10.0.0.3", 3128)
    assert not passes(policy, "10.0.0.3", 80)
    assert "hunter2" not in repr(policy)
    with pytest.raises(EgressPolicyInvalidError) as caught:
        EgressPolicy(proxy="socks5://me:hunter2@10.0.0.3")
    assert "hunter2" not in str(caught.value) + repr(caught.value.details)


def test_a_refusal_says_which_address_and_why_but_not_where_a_name_leads() -> None:
    with pytest.raises(EgressRefusedError) as caught:
        EgressPolicy().check(ip_address("10.1.2.3"), 80)
    assert str(caught.value) == (
        "refused-by-egress: 10.1.2.3:80: the address is private, and the allow-list does not name it"
    )
    with pytest.raises(EgressRefusedError) as caught:
        EgressPolicy().check(ip_address("10.1.2.3"), 80, read_host("db.internal"))
    assert caught.value.where == "db.internal:80"
    assert "10.1.2.3" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [EgressRefusedError("a:1", "why"), EgressPolicyInvalidError("allow", "x", "why")],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own bytes
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
