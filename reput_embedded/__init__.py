"""A Reput store inside a program: no server, no port.

    import reput_embedded

    with reput_embedded.open("orders-store") as store:
        receipt = store.append("Orders", b"hello", keys=["order-1001"])
        for message in store.by_key("Orders", "order-1001"):
            print(message.offset_msg_id, message.body)

The same services as those of `reput serve` run in threads of the program (deploy/background.py), and the classes of
`reput_client` call them. So arguments, answers and errors are those of `reput_client`. docs/embedded.md has the rest;
`reput_embedded.testing` has pytest fixtures.
"""

from reput_embedded.store import EmbeddedStore, ForkedStoreError, StoreClosedError, open

__all__ = ["EmbeddedStore", "ForkedStoreError", "StoreClosedError", "open"]
