"""What is done at the two ends of a start: more lines on a refusal, one log line and a ledger on success."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.plugin.log import Log, complain
from kvroom.plugin.start import Start, start_of
from kvroom.plugin.table import Table

LEDGER = "KVROOM_LEDGER"
"""The variable that names the file for the ledger."""


class Observer:
    """Looks at an engine core that has sized its KV cache, or could not. No method raises."""

    def __init__(self, table: Table, version: str, environ: Mapping[str, str], log: Log) -> None:
        self._table, self._version, self._environ, self._log = table, version, environ, log
        self._said: set[str] = set()

    def refused(self, core: Any, config: Any, error: ValueError) -> None:
        """Add to the text of ``error`` what is known of the start, if it is the check of the KV cache that failed."""
        try:
            text = error.args[0] if len(error.args) == 1 else None
            if not isinstance(text, str) or not text.startswith(self._table.refusals):
                return
            start = start_of(core, config, self._version, self._table, self._environ)
            from kvroom.plugin.account import account_of
            from kvroom.plugin.words import refusal_lines

            account = self._or_none("nothing is added about what to change", lambda: account_of(start, text))
            error.args = ("\n".join((text, "", *refusal_lines(start, account, text))),)
            self._keep(start, account, text)
        except Exception as problem:  # noqa: BLE001 - vLLM's own error is what must be raised
            complain("nothing is added to vLLM's error", problem, self._log, self._said)

    def started(self, core: Any, config: Any, found: Any) -> None:
        """Log what was measured, and write it where ``KVROOM_LEDGER`` says."""
        try:
            from kvroom.plugin.words import started_line

            start = start_of(core, config, self._version, self._table, self._environ, found)
            if start.data_rank:
                return
            self._log.info(started_line(start))
            if self._environ.get(LEDGER, "").strip():
                from kvroom.plugin.account import account_of

                account = self._or_none("the ledger holds no measurement", lambda: account_of(start))
                self._keep(start, account, None)
        except Exception as problem:  # noqa: BLE001 - the engine is up
            complain("what was measured is not reported", problem, self._log, self._said)

    def _or_none(self, what: str, make: Any) -> Any:
        try:
            return make()
        except Exception as problem:  # noqa: BLE001 - the rest stands without it
            complain(what, problem, self._log, self._said)
            return None

    def _keep(self, start: Start, account: Any, refusal: str | None) -> None:
        path = self._environ.get(LEDGER, "").strip()
        if not path or start.data_rank:
            return
        from kvroom.plugin.record import record, write

        try:
            write(path, record(start, account, refusal))
        except Exception as problem:  # noqa: BLE001 - a full disk is no reason not to serve
            complain(f"{LEDGER} cannot be written", problem, self._log, self._said)
        else:
            self._log.info(f"kvroom: the ledger of this start is in {path}")
