"""What the tools of AgentDojo's suites do, declared as a tool's author would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asterism.types.permissions import Declared, Effect, ToolEffect

BANKING: Mapping[str, Declared] = {
    # One bare string, one bare float.
    "get_iban": ToolEffect("read", source="bank account", fields="*"),
    "get_balance": ToolEffect("read", source="bank account", fields="*"),
    "get_user_info": ToolEffect("read", source="user information", fields="*"),
    # `subject` is what whoever sent the money wrote. The owner's own account stands here as "me".
    "get_most_recent_transactions": ToolEffect(
        "read",
        source="transactions",
        fields=("id", "sender", "recipient", "amount", "date", "recurring"),
        accounts=("sender", "recipient"),
    ),
    # Same records, but only the owner makes them: the subject is the owner's too.
    "get_scheduled_transactions": ToolEffect("read", source="scheduled transactions", fields="*"),
    # One string; "" for a file that is not there.
    "read_file": ToolEffect("read", paths="file_path", source="files"),
    "send_money": ToolEffect("pay", recipients="recipient", amount="amount", content="subject"),
    "schedule_transaction": ToolEffect(
        "pay", recipients="recipient", amount="amount", content="subject"
    ),
    "update_scheduled_transaction": ToolEffect(
        "pay", things="id", recipients="recipient", amount="amount", content="subject"
    ),
    "update_password": ToolEffect("grant", content="password"),
    "update_user_info": ToolEffect("write", content=("first_name", "last_name", "street", "city")),
}

# Who is in the workspace was let in, and the system keeps who wrote what. A channel has the name
# that a member chose.
_MESSAGES: dict[str, Any] = {
    "source": "messages",
    "fields": ("sender", "recipient"),
    "closed": True,
}
SLACK: Mapping[str, Declared] = {
    # Bare lists of names.
    "get_channels": ToolEffect("read", source="channels", fields=("",), closed=True),
    "get_users_in_channel": ToolEffect("read", source="users", fields=("",), closed=True),
    # `recipient` is the channel's name here, the user's name in an inbox.
    "read_channel_messages": ToolEffect("read", things="channel", **_MESSAGES),
    "read_inbox": ToolEffect("read", things="user", **_MESSAGES),
    "send_direct_message": ToolEffect("send", recipients="recipient", content="body"),
    "send_channel_message": ToolEffect("send", recipients="channel", content="body"),
    "add_user_to_channel": ToolEffect("grant", recipients="user", things="channel"),
    "invite_user_to_slack": ToolEffect("grant", recipients=("user", "user_email")),
    "remove_user_from_slack": ToolEffect("delete", things="user"),
    # One string; "404 Not Found" for a page that is not there.
    "get_webpage": ToolEffect("fetch", hosts="url", source="web"),
    "post_webpage": ToolEffect("send", hosts="url", content="content"),
}

_MAIL = ToolEffect(
    "send", recipients=("recipients", "cc", "bcc"), content=("subject", "body", "attachments")
)
_APPOINTMENT = (
    ToolEffect("write", content=("title", "description", "location")),
    ToolEffect("send", recipients="participants", content=("title", "description", "location")),
)


def _appointment(arguments: Mapping[str, Any]) -> list[Effect]:
    """An appointment is written; guests, if there are any, are told."""
    own, told = (one.effect(arguments) for one in _APPOINTMENT)
    return [own, told] if told.recipients else [own]


# `attachments` (ids of files, or whole events inside the mail) is what the sender put there.
_EMAILS = ToolEffect(
    "read",
    source="emails",
    fields=("id_", "sender", "recipients", "cc", "bcc", "status", "read", "timestamp"),
)
# Whoever invites writes title, description and location.
_CALENDAR = ToolEffect(
    "read",
    source="calendar",
    fields=("id_", "start_time", "end_time", "participants", "all_day", "status"),
)
# AgentDojo fills the address book by itself from all addresses in the mailbox, and makes the name
# from the part before the @: who writes a mail is in it.
_CONTACTS = ToolEffect("read", source="contacts", fields="*")
# `shared_with` is a mapping whose keys are the addresses. In a file that others share with the
# owner, they chose the name and with whom it is shared.
_FILES = ToolEffect(
    "read",
    source="files",
    fields=("id_", "filename", "owner", "shared_with", "size", "last_modified"),
)
_MAILBOX = "get_unread_emails get_sent_emails get_received_emails get_draft_emails search_emails"
_DIARY = "search_calendar_events get_day_calendar_events"
_DRIVE = "search_files_by_filename get_file_by_id list_files search_files"
WORKSPACE: Mapping[str, Declared] = {
    **dict.fromkeys(_MAILBOX.split(), _EMAILS),
    **dict.fromkeys(("search_contacts_by_name", "search_contacts_by_email"), _CONTACTS),
    # One bare string, such as "2024-05-15".
    "get_current_day": ToolEffect("read", source="date", fields="*"),
    **dict.fromkeys(_DIARY.split(), _CALENDAR),
    # A list of files with their whole content; from `get_file_by_id` one file, not in a list.
    **dict.fromkeys(_DRIVE.split(), _FILES),
    "send_email": _MAIL,
    "delete_email": ToolEffect("delete", things="email_id"),
    "create_calendar_event": _appointment,
    "cancel_calendar_event": ToolEffect("delete", things="event_id"),
    "reschedule_calendar_event": ToolEffect("write", things="event_id"),
    "add_calendar_event_participants": ToolEffect(
        "send", recipients="participants", things="event_id"
    ),
    "append_to_file": ToolEffect("write", things="file_id", content="content"),
    # Gives back the new file: its id stands nowhere else. The name is the call's own argument.
    "create_file": ToolEffect(
        "write",
        paths="filename",
        content="content",
        source="files",
        fields=("id_", "owner", "size", "last_modified"),
    ),
    "delete_file": ToolEffect("delete", things="file_id"),
    "share_file": ToolEffect("grant", recipients="email", things="file_id"),
}

# The lists of all places in a city are one string: "Hotel Names: A\nB\n". All others are mappings
# from the place's name, as a key, to one value: a string, a number, or a list of strings.
_HOTELS = "get_all_hotels_in_city get_hotels_prices get_hotels_address"
_RESTAURANTS = (
    "get_all_restaurants_in_city get_cuisine_type_for_restaurants get_restaurants_address "
    "get_dietary_restrictions_for_all_restaurants get_contact_information_for_restaurants "
    "get_price_for_restaurants check_restaurant_opening_hours"
)
_CARS = (
    "get_all_car_rental_companies_in_city get_car_types_available get_car_fuel_options "
    "get_car_rental_address get_car_price_per_day"
)
# The agency's rating and the guests' reviews are one string ("Rating: 4.2\nReviews: ..."), so that
# nothing in it can be told apart as the agency's own.
_REVIEWS = (
    "get_rating_reviews_for_hotels get_rating_reviews_for_restaurants "
    "get_rating_reviews_for_car_rental"
)
TRAVEL: Mapping[str, Declared] = {
    # Keys such as "Passport Number".
    "get_user_information": ToolEffect("read", source="user information", fields="*"),
    **dict.fromkeys(_HOTELS.split(), ToolEffect("read", source="hotels", fields="*")),
    **dict.fromkeys(_RESTAURANTS.split(), ToolEffect("read", source="restaurants", fields="*")),
    **dict.fromkeys(_CARS.split(), ToolEffect("read", source="car rental companies", fields="*")),
    **dict.fromkeys(_REVIEWS.split(), ToolEffect("read", source="reviews")),
    # One string, a line for each flight.
    "get_flight_information": ToolEffect("read", source="flights", fields="*"),
    **dict.fromkeys(_DIARY.split(), _CALENDAR),
    "send_email": _MAIL,
    "create_calendar_event": _appointment,
    "cancel_calendar_event": ToolEffect("delete", things="event_id"),
    "reserve_hotel": ToolEffect("pay", things="hotel"),
    "reserve_car_rental": ToolEffect("pay", things="company"),
    "reserve_restaurant": ToolEffect("write", things="restaurant"),
}

SUITES: Mapping[str, Mapping[str, Declared]] = {
    "banking": BANKING,
    "slack": SLACK,
    "workspace": WORKSPACE,
    "travel": TRAVEL,
}

TIERS: Mapping[str, str] = {"read_file": "document", "get_webpage": "web"}
"""Tools whose results others wrote from end to end; those of all others are the owner's systems."""

PUBLIC: frozenset[str] = frozenset(
    f"get_webpage get_current_day get_flight_information {_HOTELS} {_RESTAURANTS} {_CARS} "
    f"{_REVIEWS}".split()
)
"""Tools whose results are public knowledge; those of all others only the owner may see."""
