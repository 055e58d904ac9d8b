"""Every error that Noonbell raises, in one tree.

    NoonbellError
    ├── CronError
    │   ├── InvalidCronExpressionError      parse, translate
    │   │   └── CronExpressionInvalidError  the same, found in a registration
    │   ├── FieldParseError                 parse_field
    │   ├── CronCalculationError            no next or previous occurrence
    │   └── NaiveDatetimeError              (also a ValueError)
    ├── LanguageError                       English that is not understood, and where
    ├── TimingError
    │   ├── IntervalInvalidError            parse_interval
    │   ├── OneShotInvalidError             parse_one_shot
    │   ├── BoundsInvalidError              an end before the start
    │   ├── QuietHoursInvalidError
    │   └── RetryPolicyInvalidError
    ├── RegistrationError
    │   ├── RegistrationsNotArrayError
    │   ├── RegistrationShapeError
    │   ├── InvalidRegistrationError
    │   │   └── ScheduleInvalidNameError
    │   ├── ScheduleDuplicateTaskError
    │   ├── NegativeRetryDelayError
    │   └── ScheduleFrequencyError
    ├── SchedulerAlreadyActiveError
    ├── StopFromTaskError
    ├── ExitInTaskError
    ├── SchedulerInUseError                 another live scheduler holds the name
    ├── ScheduleDriftError
    ├── HostTimeZoneError                   the host's zone has no IANA name
    ├── InitializationError                 anything unexpected during initialize
    ├── TaskNotFoundError
    ├── ScheduleError
    │   ├── ScheduleInvalidError            a field of a durable schedule
    │   ├── ScheduleNotFoundError
    │   ├── ScheduleExistsError             the id or the name is taken
    │   ├── QuietHoursInUseError
    │   ├── ScheduleBusyError               a trigger while a run is under way
    │   ├── ScheduleChangedError            it is not as it was seen
    │   ├── ScheduleViewError               a view was asked for what belongs to the whole
    │   ├── ScheduleFileInvalidError        all that is wrong in a file of schedules
    │   ├── PlanOutdatedError               the store has changed since the plan was made
    │   └── DeletionRefusedError            a plan that deletes, where that was not allowed
    ├── DocumentConflictError               changed by another writer, or taken
    ├── SettingsInvalidError                a setting of the service, and where it was given
    ├── AccessError
    │   ├── AccessInvalidError              a field of a team, an API key or a user
    │   ├── AccessNotFoundError
    │   └── LoginRefusedError               a wrong password or link, or too many of them
    ├── MonitorError
    │   ├── MonitorInvalidError             a field of a heartbeat monitor, or of a ping
    │   ├── MonitorNotFoundError
    │   └── PingUnknownError                a ping URL that no monitor has
    ├── NotifyError
    │   ├── ChannelInvalidError             a field of a channel
    │   ├── RuleInvalidError                a field of a rule
    │   ├── ChannelNotFoundError
    │   ├── RuleNotFoundError
    │   └── ChannelInUseError               a rule names it
    ├── ActionError
    │   ├── CommandsOffError                the operator has not enabled commands, or not this one
    │   ├── CommandFailedError              a program ended badly, or could not be started
    │   ├── HttpJobFailedError              a request was not sent, not answered, or not answered as expected
    │   ├── NotStartedError                 a stop came before the action was called
    │   └── DeliveryError                   a message did not reach its target
    │       └── TargetAwayError             nor would any other: the target as a whole cannot be reached
    ├── DailyTasksUnavailable
    ├── SecretError
    │   ├── SecretInvalidError              a name or a value that cannot be stored
    │   ├── SecretReferenceError            ${…} that is malformed or in a wrong place
    │   ├── SecretUnknownError              ${secrets.NAME} without such a secret
    │   ├── SecretUnreadableError           a sealed record that was changed, swapped or lost its key
    │   └── MasterKeyError                  a key file or variable that cannot be used
    │       └── MasterKeyMissingError
    ├── SigningKeyError                     no key in the form whsec_…
    ├── ReceiveError                        a received webhook; each has its `status`
    │   ├── WebhookMalformedError           400
    │   ├── WebhookRefusedError             401: signature or timestamp
    │   ├── WebhookTooLargeError            413
    │   ├── WebhookInProgressError          409: the same message is being handled
    │   ├── WebhookRepeatedError            200: the same message has been handled
    │   └── WebhookUnavailableError         503: messages cannot be remembered now
    ├── StoreError
    │   ├── StoreUnavailableError           full, read-only, locked: may pass
    │   │   └── LeaseLostError               another has taken the name since; does not pass by itself
    │   ├── StoreCorruptError
    │   └── StoreUrlError
    ├── TimelineError                       a Redis timeline that cannot be used as it is
    │   └── TimelineAwayError               not reached, or not answering: may pass
    └── TaskTryDeserializeError
        ├── TaskMissingFieldError
        ├── TaskInvalidTypeError
        ├── TaskInvalidValueError
        └── TaskInvalidStructureError

Each carries its facts twice: as attributes in snake_case, and in `details` under the keys of the specification
(camelCase). Nothing here imports the rest of the package.
"""

from __future__ import annotations

from noonbell.errors.actions import (
    ActionError,
    CommandFailedError,
    CommandsOffError,
    DeliveryError,
    HttpJobFailedError,
    NotStartedError,
    TargetAwayError,
)
from noonbell.errors.base import (
    NoonbellError,
    describe_error,
    fact_of,
    raised_type,
)
from noonbell.errors.cron import (
    CronCalculationError,
    CronError,
    CronExpressionInvalidError,
    FieldParseError,
    InvalidCronExpressionError,
    NaiveDatetimeError,
)
from noonbell.errors.egress import (
    EgressError,
    EgressFailedError,
    EgressPolicyInvalidError,
    EgressRefusedError,
)
from noonbell.errors.notify import (
    ChannelInUseError,
    ChannelInvalidError,
    ChannelNotFoundError,
    NotifyError,
    RuleInvalidError,
    RuleNotFoundError,
)
from noonbell.errors.receive import (
    ReceiveError,
    SigningKeyError,
    WebhookInProgressError,
    WebhookMalformedError,
    WebhookRefusedError,
    WebhookRepeatedError,
    WebhookTooLargeError,
    WebhookUnavailableError,
)
from noonbell.errors.schedules import (
    DeletionRefusedError,
    DocumentConflictError,
    PlanOutdatedError,
    QuietHoursInUseError,
    ScheduleBusyError,
    ScheduleChangedError,
    ScheduleError,
    ScheduleExistsError,
    ScheduleFileInvalidError,
    ScheduleInvalidError,
    ScheduleNotFoundError,
    ScheduleViewError,
)
from noonbell.errors.secrets import (
    MasterKeyError,
    MasterKeyMissingError,
    SecretError,
    SecretInvalidError,
    SecretReferenceError,
    SecretUnknownError,
    SecretUnreadableError,
)
from noonbell.errors.service import (
    AccessError,
    AccessInvalidError,
    AccessNotFoundError,
    LoginRefusedError,
    MonitorError,
    MonitorInvalidError,
    MonitorNotFoundError,
    PingUnknownError,
    SettingsInvalidError,
)
from noonbell.errors.stores import (
    LeaseLostError,
    StoreCorruptError,
    StoreError,
    StoreUnavailableError,
    StoreUrlError,
    TimelineAwayError,
    TimelineError,
)
from noonbell.errors.tasks import (
    DailyTasksUnavailable,
    ExitInTaskError,
    HostTimeZoneError,
    InitializationError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDriftError,
    ScheduleDuplicateTaskError,
    ScheduleFrequencyError,
    ScheduleInvalidNameError,
    SchedulerAlreadyActiveError,
    SchedulerInUseError,
    StopFromTaskError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
    TaskNotFoundError,
    TaskTryDeserializeError,
)
from noonbell.errors.timing import (
    BoundsInvalidError,
    IntervalInvalidError,
    LanguageError,
    OneShotInvalidError,
    QuietHoursInvalidError,
    RetryPolicyInvalidError,
    TimingError,
)

__all__ = [
    "AccessError",
    "AccessInvalidError",
    "AccessNotFoundError",
    "ActionError",
    "BoundsInvalidError",
    "ChannelInUseError",
    "ChannelInvalidError",
    "ChannelNotFoundError",
    "CommandFailedError",
    "CommandsOffError",
    "CronCalculationError",
    "CronError",
    "CronExpressionInvalidError",
    "DailyTasksUnavailable",
    "DeletionRefusedError",
    "DeliveryError",
    "DocumentConflictError",
    "EgressError",
    "EgressFailedError",
    "EgressPolicyInvalidError",
    "EgressRefusedError",
    "ExitInTaskError",
    "FieldParseError",
    "HostTimeZoneError",
    "HttpJobFailedError",
    "InitializationError",
    "IntervalInvalidError",
    "InvalidCronExpressionError",
    "InvalidRegistrationError",
    "LanguageError",
    "LeaseLostError",
    "LoginRefusedError",
    "MasterKeyError",
    "MasterKeyMissingError",
    "MonitorError",
    "MonitorInvalidError",
    "MonitorNotFoundError",
    "NaiveDatetimeError",
    "NegativeRetryDelayError",
    "NoonbellError",
    "NotStartedError",
    "NotifyError",
    "OneShotInvalidError",
    "PingUnknownError",
    "PlanOutdatedError",
    "QuietHoursInUseError",
    "QuietHoursInvalidError",
    "ReceiveError",
    "RegistrationError",
    "RegistrationShapeError",
    "RegistrationsNotArrayError",
    "RetryPolicyInvalidError",
    "RuleInvalidError",
    "RuleNotFoundError",
    "ScheduleBusyError",
    "ScheduleChangedError",
    "ScheduleDriftError",
    "ScheduleDuplicateTaskError",
    "ScheduleError",
    "ScheduleExistsError",
    "ScheduleFileInvalidError",
    "ScheduleFrequencyError",
    "ScheduleInvalidError",
    "ScheduleInvalidNameError",
    "ScheduleNotFoundError",
    "ScheduleViewError",
    "SchedulerAlreadyActiveError",
    "SchedulerInUseError",
    "SecretError",
    "SecretInvalidError",
    "SecretReferenceError",
    "SecretUnknownError",
    "SecretUnreadableError",
    "SettingsInvalidError",
    "SigningKeyError",
    "StopFromTaskError",
    "StoreCorruptError",
    "StoreError",
    "StoreUnavailableError",
    "StoreUrlError",
    "TargetAwayError",
    "TaskInvalidStructureError",
    "TaskInvalidTypeError",
    "TaskInvalidValueError",
    "TaskMissingFieldError",
    "TaskNotFoundError",
    "TaskTryDeserializeError",
    "TimelineAwayError",
    "TimelineError",
    "TimingError",
    "WebhookInProgressError",
    "WebhookMalformedError",
    "WebhookRefusedError",
    "WebhookRepeatedError",
    "WebhookTooLargeError",
    "WebhookUnavailableError",
    "describe_error",
    "fact_of",
    "raised_type",
]
