"""The Hugging Face hub, behind a protocol of two questions.

Only small text files and safetensors headers are asked for, never weights, and nothing is sent but the
names of the repository and the file. The token, the endpoint, the cache and offline mode are
``huggingface_hub``'s own (HF_TOKEN, HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kvroom.errors import UnknownModel
from kvroom.models.checkpoint import Checkpoint, from_headers
from kvroom.models.parse import MAX_BYTES

CONFIG_CURE = "Or save the model's config.json and give its path instead of the name."


class Hub(Protocol):
    """What a model source has to answer."""

    def read(self, repo: str, filename: str, revision: str | None) -> bytes | None:
        """The contents of a small file (of a larger one, enough to tell); None when the repository lacks it.

        Raises UnknownModel, with what to do, when the repository cannot be reached or read.
        """

    def single_file(self, repo: str, revision: str | None) -> Checkpoint | None:
        """Sizes from the header of an unsharded ``model.safetensors``; None when it cannot be had."""


class HuggingFaceHub:
    """The hub through ``huggingface_hub``; ``offline`` looks into its local cache only."""

    def __init__(self, *, offline: bool = False) -> None:
        self.offline = offline

    def read(self, repo: str, filename: str, revision: str | None) -> bytes | None:
        """As the protocol says; a copy in the cache serves where the hub does not answer."""
        hub = _library(repo)
        refusal: Exception | None = None
        try:
            refusal = None if self.offline else _ask(hub, repo, filename, revision)
            local = self.offline or refusal is not None
            path = hub.hf_hub_download(repo, filename, revision=revision, local_files_only=local)
            with Path(path).open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except hub.errors.LocalEntryNotFoundError as error:
            if filename != "config.json":
                return None
            if isinstance(refusal, OSError):
                raise _explained(repo, revision, refusal) from None
            raise self._unreachable(repo, refusal or error) from None
        except hub.errors.EntryNotFoundError:
            return None
        except hub.errors.HFValidationError:
            raise UnknownModel(f"'{repo[:80]}' is not a model id.", "Write it as organisation/name.") from None
        except OSError as error:
            raise _explained(repo, revision, error) from None
        except hub.errors.HTTPError as error:
            raise self._unreachable(repo, error) from None
        except (ValueError, AttributeError) as error:  # an address or an answer that is none
            raise UnknownModel(
                f"The hub's answer cannot be used ({error}).", f"Check HF_ENDPOINT.\n{CONFIG_CURE}"
            ) from None

    def single_file(self, repo: str, revision: str | None) -> Checkpoint | None:
        """As the protocol says."""
        if self.offline:
            return None
        hub = _library(repo)
        try:
            found = hub.get_safetensors_metadata(repo, revision=revision)
            return from_headers(
                {name: {"dtype": t.dtype, "data_offsets": t.data_offsets} for name, t in each.tensors.items()}
                for each in found.files_metadata.values()
            )
        except (
            *(hub.errors.NotASafetensorsRepoError, hub.errors.SafetensorsParsingError, hub.errors.HTTPError),
            *(OSError, ValueError, TypeError, LookupError, AttributeError),
        ):  # a plan can do without, whatever the header holds
            return None

    def _unreachable(self, repo: str, error: Exception) -> UnknownModel:
        if self.offline:
            return UnknownModel(
                f"{repo} is not in the local Hugging Face cache, and kvroom is offline.",
                f"Run once without --offline (and without HF_HUB_OFFLINE), so that its config is cached.\n"
                f"{CONFIG_CURE}",
            )
        return UnknownModel(
            f"The hub could not be reached to read {repo} ({type(error.__cause__ or error).__name__}).",
            f"Check the network, HF_ENDPOINT and the proxy.\n{CONFIG_CURE}",
        )


def _library(repo: str) -> Any:
    """``huggingface_hub``; UnknownModel when it is not installed."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise UnknownModel(
            f"{repo} is not in kvroom's catalogue, and reading the hub needs an extra package.",
            f"Run: pip install 'kvroom[hub]'\n{CONFIG_CURE}",
        ) from None
    return huggingface_hub


def _ask(hub: Any, repo: str, filename: str, revision: str | None) -> Exception | None:
    """What keeps the hub from giving the file, None when it will.

    A download would find out as well, but only after half a minute of trying, and after fetching any size.
    """
    try:
        about = hub.get_hf_file_metadata(hub.hf_hub_url(repo, filename, revision=revision))
    except (hub.errors.EntryNotFoundError, hub.errors.HFValidationError):
        raise
    except Exception as error:  # noqa: BLE001 - what the client raises for an address that is none has no common base
        return error
    if (about.size or 0) > MAX_BYTES:
        raise UnknownModel(f"{filename} of {repo} has {about.size:,} bytes, too many to read.", CONFIG_CURE)
    return None


def _explained(repo: str, revision: str | None, error: OSError) -> UnknownModel:
    """The hub's refusal as one message that says what to do."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return UnknownModel(
            f"{repo} is gated: its licence has to be accepted before anything can be read.",
            f"Accept it on the model's page, then run: hf auth login (or set HF_TOKEN).\n{CONFIG_CURE}",
        )
    if isinstance(error, RevisionNotFoundError):
        return UnknownModel(f"{repo} has no revision '{revision}'.", "Check --revision on the model's page.")
    if isinstance(error, RepositoryNotFoundError):
        return UnknownModel(
            f"The hub has no model {repo}, or it is private and the token may not see it.",
            f"Check the spelling; for a private model run: hf auth login (or set HF_TOKEN).\n{CONFIG_CURE}",
        )
    status = getattr(getattr(error, "response", None), "status_code", None)
    answer = f"HTTP {status}" if status else type(error).__name__
    return UnknownModel(
        f"The hub could not be read for {repo} ({answer}).",
        f"Check the network, HF_ENDPOINT and HF_TOKEN, or try again later.\n{CONFIG_CURE}",
    )
