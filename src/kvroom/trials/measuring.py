"""The load put on a server by ``kvroom.server``, and its figures as a trial keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.errors import KvroomError
from kvroom.trials.figures import Load, Sample


@dataclass(frozen=True, slots=True)
class ServerMeasures:
    """Measures over HTTP. ``key`` is sent as a bearer token where the server wants one."""

    key: str = ""
    timeout: float = 300.0
    """Seconds for one request."""

    def __call__(self, url: str, load: Load) -> Sample:
        """The figures of ``load``; what fails is counted, and a server that is gone as well."""
        from kvroom.server.address import Access
        from kvroom.server.measure import measure
        from kvroom.server.workload import fixed

        access = Access((("Authorization", f"Bearer {self.key}"),)) if self.key else Access()
        try:
            found = measure(
                url,
                fixed(load.input_len, load.output_len),
                concurrency=load.concurrency,
                requests=load.requests,
                access=access,
                warm_up=0,
                pool=False,
                timeout=self.timeout,
                max_seconds=self.timeout * 4,
            )
        except KvroomError as error:
            return Sample(None, None, 0.0, failures=load.requests, problem=access.hide(error.problem))
        step = found.step
        failed = next((outcome for outcome in step.outcomes if not outcome.ok), None)
        claims = [sample.claim for sample in step.samples if sample.claim is not None]
        return Sample(
            found.ttft.median if found.ttft else None,
            found.tpot.median if found.tpot else None,
            found.output_rate,
            failures=sum(count for _, count in found.failures),
            kv_tokens=claims[-1].most_tokens if claims else None,
            kv_peak=step.kv_use,
            preemptions=step.counted("preemptions"),
            waiting=step.waiting,
            problem=access.hide(f"{failed.failure}: {failed.message}")[:200] if failed else "",
        )
