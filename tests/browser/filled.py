"""A site with something on every page: what people would have after a while of use."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import quote

from tests.browser.site import Site


def fill(site: Site) -> dict[str, str]:
    """Fill a site; returns the path of each kind of page by a name for it."""
    site.session()
    return site.call(_filled(site))


async def _filled(site: Site) -> dict[str, str]:
    schedules = site.schedules
    team = "default"
    quiet = await schedules.create_quiet_hours(
        "nights and Christmas",
        [
            {"weekdays": [1, 2, 3, 4, 5], "from": "22:30", "to": "06:00", "timezone": "Europe/Kyiv"},
            {"weekdays": [0, 6], "from": "00:00", "to": "00:00", "timezone": "Europe/Kyiv"},
            {"dates": ["2026-12-25"], "from": "00:00", "to": "00:00", "timezone": "Europe/Kyiv"},
        ],
        policy_id="nights",
    )
    await schedules.secrets.put(team, "PAYROLL_TOKEN", "s3cret-payroll-value")
    await schedules.secrets.put(team, "DB_PASSWORD", "another-hidden-thing")
    hook = await schedules.channels.create(
        name="on-call", kind="webhook", config={"url": site.at("/hook"), "headers": {"X-Token": "hook-secret-value"}},
        channel_id="on-call",
    )  # fmt: skip
    await schedules.channels.create(
        name="ops in Slack", kind="slack", config={"url": "https://hooks.slack.example/services/T0/B0/hidden"},
        channel_id="ops", enabled=False,
    )  # fmt: skip
    rule = await schedules.rules.create(
        name="failures of billing", on=["failed", "recovered"], channels=[hook.channel_id], tag="billing"
    )
    known = {schedule.schedule_id for schedule in (await schedules.list()).items}
    for fields in _schedules(site, quiet.policy_id):
        if fields["schedule_id"] in known:  # of a year that was lived through before
            await schedules.update(fields["schedule_id"], action=fields["action"])
        else:
            await schedules.create(**fields)
    await schedules.pause("old-export")
    await site.bury("metrics", {"type": "metrics.collected", "data": {"rows": 12}}, "The queue refused it: too large")
    monitors = site.service.monitors.acting("user:ada")
    backup = await monitors.create(
        name="nightly backup", type="cron", spec="30 2 * * *", timezone="Europe/Kyiv", grace_seconds=1800,
        tags=["backup"], monitor_id="backup",
    )  # fmt: skip
    await monitors.ping(backup.token, "start")
    await monitors.ping(backup.token, body="412 files, 3.1 GB")
    down = await monitors.create(name="mail queue", type="interval", spec="300", monitor_id="queue")
    await monitors.ping(down.token, exit_code=2, body="queue is stuck\ntry again")
    await monitors.create(name="certificates", type="interval", spec="86400", monitor_id="certs")
    await site.service.access.create_key(team, ["write"], name="deploy pipeline")
    await site.service.access.create_team("payroll", "Payroll and benefits")
    runs: dict[str, str] = {}
    for schedule_id in ("ring-the-bell", "ring-the-bell", "invoices", "ring-the-bell", "say"):
        runs[schedule_id] = await site.ran(schedule_id)
    await asyncio.gather(*(site.ran(one) for one in ("invoices", "warm-cache")))
    return {
        "overview": "/",
        "schedules": "/schedules",
        "schedule": "/schedules/ring-the-bell",
        "schedule_failing": "/schedules/invoices",
        "schedule_new": "/schedules/new",
        "schedule_edit": "/schedules/invoices/edit",
        "schedule_why": "/schedules/invoices/why",
        "schedule_verify": "/schedules/invoices/verify",
        "schedule_signing": "/schedules/invoices/signing-keys",
        "runs": "/runs",
        "run": f"/runs/{quote(runs['ring-the-bell'], safe='')}",
        "run_failed": f"/runs/{quote(runs['invoices'], safe='')}",
        "run_command": f"/runs/{quote(runs['say'], safe='')}",
        "runs_of_one": "/runs?schedule=ring-the-bell",
        "forecast": "/forecast",
        "plan": "/plan",
        "monitors": "/monitors",
        "monitor": "/monitors/queue",
        "monitor_new": "/monitors/new",
        "monitor_edit": "/monitors/backup/edit",
        "quiet_hours": "/quiet-hours",
        "quiet_hours_new": "/quiet-hours/new",
        "quiet_hours_edit": "/quiet-hours/nights",
        "channels": "/channels",
        "dead_letters": "/dead-letters",
        "channel_new": "/channels/new",
        "channel_email": "/channels/new?kind=email",
        "channel": "/channels/on-call",
        "rule_new": "/rules/new",
        "rule": f"/rules/{rule.rule_id}",
        "secrets": "/secrets",
        "audit": "/audit",
        "audit_event": "/audit/1",
        "verify": "/verify?go=yes",
        "keys": "/keys",
        "team": "/team",
        "instances": "/instances",
        "settings": "/settings",
        "missing": "/schedules/nowhere",
        "unknown": "/no/such/page",
    }


def _schedules(site: Site, quiet: str) -> list[dict[str, Any]]:
    def http(path: str, **more: Any) -> dict[str, Any]:
        return {"kind": "http", "url": site.at(path), **more}

    return [
        {"schedule_id": "ring-the-bell", "name": "Ring the bell", "type": "cron", "spec": "0 12 * * *",
         "timezone": "Europe/Kyiv", "action": http("/bell", body={"json": {"from": "noonbell"}}), "tags": ["house"]},
        {"schedule_id": "invoices", "name": "Send invoices", "type": "cron", "spec": "0 9 * * 1-5",
         "timezone": "Europe/Kyiv", "action": http("/fail"), "tags": ["billing"], "quiet_hours_policy_id": quiet},
        {"schedule_id": "warm-cache", "name": "Warm the cache", "type": "interval", "spec": "900",
         "action": http("/bell"), "tags": ["web", "cache"]},
        {"schedule_id": "metrics", "name": "Collect metrics", "type": "cron", "spec": "*/5 * * * *",
         "action": http("/bell"), "tags": ["web"]},
        {"schedule_id": "say", "name": "Say hello", "type": "cron", "spec": "0 9 * * *",
         "action": {"kind": "command", "argv": ["/bin/echo", "hello from a program"]}},
        {"schedule_id": "report", "name": "Quarterly report", "type": "cron", "spec": "0 9 1 1,4,7,10 *",
         "timezone": "America/New_York", "action": http("/bell"), "quiet_hours_policy_id": quiet},
        {"schedule_id": "old-export", "name": "Old export", "type": "cron", "spec": "15 3 * * *",
         "action": http("/bell")},
    ]  # fmt: skip


PAGES: Final = (
    "overview", "schedules", "schedule", "schedule_failing", "schedule_new", "schedule_edit", "schedule_why",
    "schedule_verify", "schedule_signing", "runs", "runs_of_one", "plan",
    "run", "run_failed", "run_command", "forecast", "monitors", "monitor", "monitor_new", "monitor_edit", "quiet_hours",
    "quiet_hours_new", "quiet_hours_edit", "channels", "dead_letters", "channel_new", "channel_email", "channel",
    "rule_new", "rule", "secrets", "audit", "audit_event", "verify", "keys", "team", "instances", "settings", "missing",
    "unknown",
)  # fmt: skip
