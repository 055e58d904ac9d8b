"""Notifications: channels, and rules that select which channel gets which event. See docs/notifications.md."""

from noonbell.notify.channels import Channels
from noonbell.notify.dispatcher import NotificationDispatcher
from noonbell.notify.notice_records import Channel, ChannelPage, Event, Rule, RulePage
from noonbell.notify.rules import RuleChanges, RuleFields, Rules

__all__ = [
    "Channel",
    "ChannelPage",
    "Channels",
    "Event",
    "NotificationDispatcher",
    "Rule",
    "RuleChanges",
    "RuleFields",
    "RulePage",
    "Rules",
]
