"""Registers, reads and deletes a webhook with the package that openapi-python-client made."""

from os import environ

from webhooks_api import Client
from webhooks_api.api.webhooks import create_webhook, delete_webhook, list_webhooks, read_webhook
from webhooks_api.models import CreatedWebhook, EventType, NewWebhook, Problem, Webhook, WebhookList
from webhooks_api.types import UNSET, Unset

URL = environ["URL"]
EVENTS = [EventType.QUOTE_CLOSED, EventType.QUOTE_ACCEPTED]


def is_listed(client: Client, webhook: CreatedWebhook) -> bool:
    """Looks for a webhook in the list, page by page."""
    cursor: str | Unset | None = UNSET
    while cursor is not None:
        page = list_webhooks.sync(client=client, cursor=cursor)
        assert isinstance(page, WebhookList), page
        if any(listed.id == webhook.id for listed in page.data):
            return True
        cursor = page.next_cursor
    return False


def main(client: Client) -> None:
    # Register a webhook for two event types. Its signing secret is shown this once.
    created = create_webhook.sync(client=client, body=NewWebhook(name="Python", url=URL, events=EVENTS))
    assert isinstance(created, CreatedWebhook), created
    assert created.signing_secret.startswith("whsec_")
    print(f"registered {created.id}, and its signing secret was shown")

    # Read it, and find it in the list.
    webhook = read_webhook.sync(created.id, client=client)
    assert isinstance(webhook, Webhook), webhook
    assert (webhook.name, webhook.url, webhook.events) == ("Python", URL, EVENTS), webhook
    assert is_listed(client, created), "the list does not have it"

    # What cannot be registered is answered with a problem that names each faulty field.
    refused = create_webhook.sync(client=client, body=NewWebhook(name="Python", url="http://localhost/", events=[]))
    assert isinstance(refused, Problem), refused
    assert refused.code == "validation_failed", refused
    assert refused.errors and sorted(fault.field for fault in refused.errors) == ["events", "url"], refused

    # Delete it. Then it is not found.
    assert delete_webhook.sync_detailed(created.id, client=client).status_code == 204
    gone = read_webhook.sync_detailed(created.id, client=client)
    assert gone.status_code == 404 and isinstance(gone.parsed, Problem), gone
    assert gone.parsed.code == "not_found", gone


# Every call sends the program's key, and an answer that is not described raises an error.
headers = {"Authorization": f"Bearer {environ['KEY']}"}
with Client(base_url=environ["BASE_URL"], headers=headers, raise_on_unexpected_status=True) as api:
    main(api)
