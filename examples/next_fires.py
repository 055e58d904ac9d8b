"""When does it fire? Three nights around a clock change, seen by both DST policies.

Run it with `python examples/next_fires.py`. It needs nothing but `noonbell.cron` and `noonbell.language`.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from noonbell.cron import DstPolicy, parse, translate
from noonbell.language import describe, dst_surprises

NEW_YORK = ZoneInfo("America/New_York")
POLICIES: tuple[DstPolicy, ...] = ("literal", "once")


def main() -> None:
    backup = parse(translate("30 1 * * sun-sat"))
    print(f"{backup.text}: {describe(backup)}")

    start = datetime(2026, 10, 31, tzinfo=NEW_YORK)
    for policy in POLICIES:
        print(f"\n{policy}:")
        for at in backup.between(start, start + timedelta(days=3), dst=policy):
            print(f"  {at:%a %Y-%m-%d %H:%M %Z}")

    print("\nin the year after:")
    for surprise in dst_surprises(backup, NEW_YORK, start, start + timedelta(days=365)):
        print(f"  {surprise.sentence}")


if __name__ == "__main__":
    main()
