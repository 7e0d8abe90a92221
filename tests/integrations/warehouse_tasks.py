"""Sixty tasks for `warehouse_agent`; no wording is in two splits."""

from __future__ import annotations

import json
from pathlib import Path

_SPLITS = ["train"] * 6 + ["validation"] * 2 + ["heldout"] * 4
_SAID = {
    "op_11": """How many of {} do we have in stock?
What is the stock of {}?
Count the pieces of {} on the shelf.
How much of {} is left in stock?
Tell me the quantity of {} in the warehouse.
Do we still have {} in stock?
How many pieces of {} are there?
Give me the stock level of {}.
What quantity of {} is on the shelf?
How many {} are left?
Is {} still in stock?
What is the number of pieces of {} we have?""",
    "op_12": """Please reserve {} for a customer.
Hold {} for Mrs Miller.
Set {} aside for later, somebody wants it.
Keep {} reserved until Friday.
A customer wants to have {} reserved.
Put a reservation on {}.
Reserve one {} for me, please.
Hold back {} for a customer.
Please keep {} aside for a customer.
Can you reserve {}?
Make a reservation for {}.
Hold {} until tomorrow, it is reserved.""",
    "op_21": """Ship {} to the customer.
Send {} out today by parcel.
{} must be delivered, please dispatch it.
Get {} on its way to the customer.
Hand {} over to the carrier.
Dispatch {} by express delivery.
Please ship {} now.
Send the parcel with {} off.
Deliver {} to the customer today.
Please dispatch {}.
Ship {} by express.
Give {} to the carrier for delivery.""",
    "op_22": """A customer brought {} back, take the return.
{} was returned to us.
Please accept the return of {}.
The customer does not want {} any more and returns it.
Book {} as returned.
{} has come back from the customer.
We got {} back as a return.
Take {} back, the customer returned it.
The return of {} has arrived.
Somebody returned {}.
A customer wants to return {}.
Accept {} back from the customer.""",
    "op_30": """{} is broken.
Someone dropped {} and it is damaged.
Report {} as damaged goods.
{} has a crack, it cannot be sold.
The box of {} got wet and it is ruined.
Write {} off, it is defective.
{} is damaged, please note it.
We found {} broken on the floor.
{} is defective and cannot be sold.
{} fell down and broke.
Mark {} as damaged.
The glass of {} is cracked and broken.""",
}


def write_tasks(path: Path) -> None:
    """Writes the file."""
    lines = []
    for tool, texts in _SAID.items():
        for i, text in enumerate(texts.splitlines()):
            # Says nothing of the tool.
            item = f"{'ABCDEFGHIJKL'[i]}QX-{100 + 7 * i}"
            lines.append(
                {
                    "id": f"{tool}-{i}",
                    "messages": [{"role": "user", "content": text.format(item)}],
                    "expected": [{"name": tool, "arguments": {"item": item}}],
                    "split": _SPLITS[i],
                }
            )
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
