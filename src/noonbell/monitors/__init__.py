"""Heartbeat monitors: a watch over jobs that run elsewhere and report by calling a URL."""

from noonbell.monitors.alerts import Alerts, LoggedAlerts, MonitorFlipped
from noonbell.monitors.monitor_records import FlipRecord, Monitor, MonitorPage, OpenRun, Ping
from noonbell.monitors.monitors import Monitors
from noonbell.monitors.ping_app import PingApp
from noonbell.monitors.rates import PingLimits
from noonbell.monitors.watch import Watch

__all__ = [
    "Alerts",
    "FlipRecord",
    "LoggedAlerts",
    "Monitor",
    "MonitorFlipped",
    "MonitorPage",
    "Monitors",
    "OpenRun",
    "Ping",
    "PingApp",
    "PingLimits",
    "Watch",
]
