"""The first questions: is a server there, which, what does it serve, and does it answer at all?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvroom.errors import ServerError, UsageError, short
from kvroom.server.check import CURES, Check, Held, failed
from kvroom.server.client import Answer, Client
from kvroom.server.generate import Ask, generate_whole
from kvroom.server.outcome import Failed, Failure
from kvroom.vllm.releases import Release, parse_release

NO_SUCH_MODEL = "kvroom-asks-for-no-such-model"
_NAMES_SHOWN = 5
_KEY_NEEDED = {401, 403}


@dataclass(frozen=True, slots=True)
class Served:
    """One name under which a model can be asked for."""

    name: str
    max_model_len: int | None = None
    parent: str | None = None
    """A LoRA adapter's base."""


async def health(client: Client) -> Check:
    """Whether ``/health`` says 200.

    Raises ServerError where nobody is there, or nobody whom one can trust, and Failed where no answer comes.
    """
    try:
        answer = await client.ask("GET", "/health")
    except Failed as error:
        if error.kind in {Failure.UNREACHABLE, Failure.TLS, Failure.GARBAGE}:
            raise _nobody(error) from None
        raise
    if answer.status == 200:
        return Check("health", Held.HOLDS, f"200 in {answer.seconds * 1000:.0f} ms")
    if answer.status >= 500:
        why = "vLLM answers so once its engine has died, and a gateway when there is no server behind it."
        return Check(
            "health", Held.FAILS, f"HTTP {answer.status} {answer.error}".strip(), why, CURES[Failure.SERVER_ERROR]
        )
    return Check("health", Held.UNKNOWN, f"HTTP {answer.status}: this server, or a gateway before it, has no /health")


def _nobody(error: Failed) -> ServerError:
    cure = {
        Failure.TLS: "Give the authority's certificate with --ca-file FILE, or trust any with --insecure. "
        "A server without TLS is http://.",
        Failure.GARBAGE: "Is this the port of the API server, and is it http or https?",
    }.get(error.kind, "Start the server, or give its host and port as in http://127.0.0.1:8000.")
    problem = f"{error}"
    return ServerError(f"{problem[:1].upper()}{problem[1:]}.", cure)


async def version(client: Client) -> tuple[Release | None, Check]:
    """The release, and what ``/version`` said."""
    try:
        answer = await client.ask("GET", "/version")
    except Failed as error:
        return None, Check("version", Held.UNKNOWN, str(error))
    data = answer.json()
    text = data.get("version") if answer.status == 200 and isinstance(data, dict) else None
    if not isinstance(text, str):
        return None, Check("version", Held.UNKNOWN, f"HTTP {answer.status}: /version names none; is it vLLM?")
    try:
        return parse_release(text), Check("version", Held.HOLDS, f"vLLM {short(text, 60)}")
    except UsageError:
        return None, Check("version", Held.UNKNOWN, f"{short(text, 60)} is no release")


async def models(client: Client) -> tuple[tuple[Served, ...], Check]:
    """What is served under which name; raises ServerError for what is no OpenAI-compatible server, or a missing key."""
    try:
        answer = await client.ask("GET", "/v1/models")
    except Failed as error:
        return (), Check("models", Held.FAILS, str(error), "", CURES.get(error.kind, ""))
    if answer.status in _KEY_NEEDED:
        raise ServerError(
            f"{client.base} lets nobody in without the right key: HTTP {answer.status} {answer.error}",
            "Put the key of the server into a variable and name it: --api-key-env NAME",
        )
    if answer.status >= 500:
        return (), Check("models", Held.FAILS, f"HTTP {answer.status} {answer.error}", "", CURES[Failure.SERVER_ERROR])
    served = _served(answer)
    if served is None:
        where = f" and redirects to {short(answer.location)}" if 300 <= answer.status < 400 else ""
        raise ServerError(
            f"{client.base} is no OpenAI-compatible server: /v1/models answers {answer.status}{where}: "
            f"{short(answer.error, 80) or 'nothing'}",
            "Give the address of vLLM's API server, without /v1; a redirect is not followed.",
        )
    names = ", ".join(_about(each) for each in served[:_NAMES_SHOWN])
    more = f" and {len(served) - _NAMES_SHOWN} more" if len(served) > _NAMES_SHOWN else ""
    if not served:
        return (), Check("models", Held.FAILS, "the list is empty", "", "The server serves no model.")
    return served, Check("models", Held.HOLDS, f"{names}{more}")


def _served(answer: Answer) -> tuple[Served, ...] | None:
    data = answer.json()
    entries = data.get("data") if answer.status == 200 and isinstance(data, dict) else None
    if not isinstance(entries, list):
        return None
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            return None
        length, parent = entry.get("max_model_len"), entry.get("parent")
        whole = isinstance(length, int) and not isinstance(length, bool) and 0 < length < 2**31
        found.append(Served(entry["id"], length if whole else None, parent if isinstance(parent, str) else None))
    return tuple(found)


def _about(served: Served) -> str:
    length = f" (max_model_len {served.max_model_len:,})" if served.max_model_len else ""
    return f"{short(served.name)}{length}"


def choose(served: Sequence[Served], name: str | None) -> Served:
    """The model to ask: ``name``, else the first; UsageError where it is not served."""
    if name is None:
        return served[0]
    for each in served:
        if each.name == name:
            return each
    names = ", ".join(short(each.name, 60) for each in served[:_NAMES_SHOWN])
    raise UsageError(
        f"--model {short(name)}: the server has no such name; it answers 404 to it. It serves {names}.",
        "Use one of these names, or start the server with --served-model-name NAME.",
    )


async def wrong_model(client: Client, served: Sequence[Served], seconds: float, *, chat: bool) -> Check:
    """Whether a name that is not served gets a 404."""
    ask = Ask(model=NO_SUCH_MODEL, prompt="a", output=1, chat=chat, extras=False)
    outcome = await generate_whole(client, ask, seconds)
    names = ", ".join(short(each.name, 60) for each in served[:_NAMES_SHOWN])
    cure = f"Clients must send one of: {names}. The server's --served-model-name sets it."
    if outcome.status == 404 and outcome.message:
        why = "That is what a client gets whose `model` is not the served name, often the folder or the hub's id."
        return Check("wrong model", Held.HOLDS, f"404: {short(outcome.message, 200)}", why, cure)
    if outcome.ok:
        why = "A gateway, or another server than vLLM: a mistyped model is answered by some other."
        return Check("wrong model", Held.UNKNOWN, "the name of the model is not looked at", why)
    return failed("wrong model", outcome, "A model that is not served should get a 404.")
