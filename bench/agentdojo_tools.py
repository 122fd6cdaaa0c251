"""What the tools of AgentDojo's suites do, declared as a tool's author would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asterism.types.deeds import Declared, Deed, Does

READ = Does("read")

BANKING: Mapping[str, Declared] = {
    "get_iban": READ,
    "get_balance": READ,
    "get_user_info": READ,
    "get_most_recent_transactions": READ,
    "get_scheduled_transactions": READ,
    "read_file": Does("read", paths="file_path"),
    "send_money": Does("pay", recipients="recipient", amount="amount", content="subject"),
    "schedule_transaction": Does("pay", recipients="recipient", amount="amount", content="subject"),
    "update_scheduled_transaction": Does(
        "pay", things="id", recipients="recipient", amount="amount", content="subject"
    ),
    "update_password": Does("grant", content="password"),
    "update_user_info": Does("write", content=("first_name", "last_name", "street", "city")),
}

SLACK: Mapping[str, Declared] = {
    "get_channels": READ,
    "get_users_in_channel": READ,
    "read_channel_messages": READ,
    "read_inbox": READ,
    "send_direct_message": Does("send", recipients="recipient", content="body"),
    "send_channel_message": Does("send", recipients="channel", content="body"),
    "add_user_to_channel": Does("grant", recipients="user", things="channel"),
    "invite_user_to_slack": Does("grant", recipients=("user", "user_email")),
    "remove_user_from_slack": Does("delete", things="user"),
    "get_webpage": Does("fetch", hosts="url"),
    "post_webpage": Does("send", hosts="url", content="content"),
}

_MAIL = Does(
    "send", recipients=("recipients", "cc", "bcc"), content=("subject", "body", "attachments")
)
_APPOINTMENT = (
    Does("write", content=("title", "description", "location")),
    Does("send", recipients="participants", content=("title", "description", "location")),
)


def _appointment(arguments: Mapping[str, Any]) -> list[Deed]:
    """An appointment is written; guests, if there are any, are told."""
    own, told = (one.deed(arguments) for one in _APPOINTMENT)
    return [own, told] if told.recipients else [own]


_LOOKING = (
    "get_unread_emails get_sent_emails get_received_emails get_draft_emails search_emails "
    "search_contacts_by_name search_contacts_by_email get_current_day search_calendar_events "
    "get_day_calendar_events search_files_by_filename get_file_by_id list_files search_files"
)
WORKSPACE: Mapping[str, Declared] = {
    **dict.fromkeys(_LOOKING.split(), READ),
    "send_email": _MAIL,
    "delete_email": Does("delete", things="email_id"),
    "create_calendar_event": _appointment,
    "cancel_calendar_event": Does("delete", things="event_id"),
    "reschedule_calendar_event": Does("write", things="event_id"),
    "add_calendar_event_participants": Does("send", recipients="participants", things="event_id"),
    "append_to_file": Does("write", things="file_id", content="content"),
    "create_file": Does("write", paths="filename", content="content"),
    "delete_file": Does("delete", things="file_id"),
    "share_file": Does("grant", recipients="email", things="file_id"),
}

_SEEKING = (
    "get_user_information get_all_hotels_in_city get_hotels_prices get_rating_reviews_for_hotels "
    "get_hotels_address get_all_restaurants_in_city get_cuisine_type_for_restaurants "
    "get_restaurants_address get_rating_reviews_for_restaurants "
    "get_dietary_restrictions_for_all_restaurants get_contact_information_for_restaurants "
    "get_price_for_restaurants check_restaurant_opening_hours "
    "get_all_car_rental_companies_in_city get_car_types_available "
    "get_rating_reviews_for_car_rental get_car_fuel_options get_car_rental_address "
    "get_car_price_per_day search_calendar_events get_day_calendar_events get_flight_information"
)
TRAVEL: Mapping[str, Declared] = {
    **dict.fromkeys(_SEEKING.split(), READ),
    "send_email": _MAIL,
    "create_calendar_event": _appointment,
    "cancel_calendar_event": Does("delete", things="event_id"),
    "reserve_hotel": Does("pay", things="hotel"),
    "reserve_car_rental": Does("pay", things="company"),
    "reserve_restaurant": Does("write", things="restaurant"),
}

SUITES: Mapping[str, Mapping[str, Declared]] = {
    "banking": BANKING,
    "slack": SLACK,
    "workspace": WORKSPACE,
    "travel": TRAVEL,
}

TIERS: Mapping[str, str] = {"read_file": "document", "get_webpage": "web"}
"""Tools whose results others wrote from end to end; those of all others are the owner's systems."""
