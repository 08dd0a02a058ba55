import pytest

from kvroom.errors import UnknownModel
from kvroom.models.hub import HuggingFaceHub, _explained

errors = pytest.importorskip("huggingface_hub.errors")


class Answer:
    """As much of an HTTP response as the errors look at."""

    def __init__(self, status: int) -> None:
        self.status_code = status
        self.headers: dict[str, str] = {}
        self.request = None


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        ("GatedRepoError", 403, "org/m is gated: its licence has to be accepted.*hf auth login"),
        ("RepositoryNotFoundError", 404, "no model org/m, or it is private.*Check the spelling"),
        ("RevisionNotFoundError", 404, "org/m has no revision 'v9'"),
        ("HfHubHTTPError", 503, r"could not be read for org/m \(HTTP 503\).*HF_ENDPOINT"),
    ],
)
def test_a_refusal_says_what_to_do(kind: str, status: int, says: str) -> None:
    error = getattr(errors, kind)("refused", response=Answer(status))

    message = _explained("org/m", "v9", error)

    assert isinstance(message, UnknownModel)
    with pytest.raises(UnknownModel, match=f"(?s){says}"):
        raise message


def test_a_connection_that_fails_says_to_check_the_network() -> None:
    with pytest.raises(UnknownModel, match=r"(?s)\(ConnectionResetError\).*Check the network"):
        raise _explained("org/m", None, ConnectionResetError("reset"))


def test_offline_without_a_cached_copy_says_how_to_get_one() -> None:
    hub = HuggingFaceHub(offline=True)

    with pytest.raises(UnknownModel, match=r"(?s)not in the local Hugging Face cache.*Run once without --offline"):
        hub.read("kvroom-tests/no-such-model", "config.json", None)
    assert hub.read("kvroom-tests/no-such-model", "hf_quant_config.json", None) is None
    assert hub.single_file("kvroom-tests/no-such-model", None) is None


def test_what_is_no_id_is_refused() -> None:
    with pytest.raises(UnknownModel, match="not a model id"):
        HuggingFaceHub(offline=True).read("a//b", "config.json", None)
