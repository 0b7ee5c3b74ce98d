"""The method names of A2A 0.3 and 1.0, and what the gateway does differently for some of them."""

from __future__ import annotations

from typing import Final

#: Methods whose answer may be an event stream, in 0.3 and 1.0 (contract 3.1).
STREAMING: Final = frozenset({"message/stream", "tasks/resubscribe", "SendStreamingMessage", "SubscribeToTask"})

#: Methods that only read: a request that got lost on a reused connection may be sent again (contract 2.3).
READ_ONLY: Final = frozenset(
    {
        "tasks/get",
        "GetTask",
        "ListTasks",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotificationConfig/list",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "agent/getAuthenticatedExtendedCard",
        "GetExtendedAgentCard",
    }
)

#: Methods whose result is an agent card (contract 5.4).
CARD_GETTERS: Final = frozenset({"agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"})

#: The methods of A2A 1.0: a caller that sends one speaks the A2A dialect (contract, introduction).
V1_METHODS: Final = frozenset(
    {
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "GetExtendedAgentCard",
    }
)

V03_METHODS: Final = frozenset(
    {
        "message/send",
        "message/stream",
        "tasks/get",
        "tasks/cancel",
        "tasks/resubscribe",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotificationConfig/list",
        "tasks/pushNotificationConfig/delete",
        "agent/getAuthenticatedExtendedCard",
    }
)


#: The names that KubeMQ's metrics know; everything else is `unknown` there (contract 7).
KUBEMQ_METHODS: Final = frozenset({"message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/send"})
