"""Notifications: channels, and rules that say who is told of what. See docs/notifications.md."""

from noonbell.notify.channels import Channels
from noonbell.notify.desk import Desk
from noonbell.notify.records import Channel, ChannelPage, Event, Rule, RulePage
from noonbell.notify.rules import RuleChanges, RuleFields, Rules

__all__ = [
    "Channel",
    "ChannelPage",
    "Channels",
    "Desk",
    "Event",
    "Rule",
    "RuleChanges",
    "RuleFields",
    "RulePage",
    "Rules",
]
