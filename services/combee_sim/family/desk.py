"""A service desk: refunds, bookings and deliveries by house rules that a reader judges at a glance.

A ticket is about one rule. Without the rule an agent does what is usual elsewhere, which is wrong here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

NAMES = ("Ann", "Ben", "Carla", "Dev", "Emil", "Fay", "Goran", "Hana")
_TICKET = re.compile(r"Service desk, order (\d{4}): (?P<ask>.{1,300})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HouseRule:
    """One rule of the desk, and the tickets that it decides."""

    about: str
    ask: str
    """The ticket; ``{who}`` is a customer."""
    usual: str
    """The answer of an agent who does not know the rule."""
    answer: str
    wordings: tuple[str, ...]
    """The rule; the first wording is the plain one."""
    opposite: str

    def is_asked(self, ticket: str) -> bool:
        """Return whether a ticket's text is about this rule."""
        before, _, after = self.ask.partition("{who}")
        return ticket.startswith(before) and ticket.endswith(after)


RULES = (
    HouseRule(
        "the time for returns",
        "{who} returns unworn shoes that were delivered 24 days ago. What happens?",
        "refuse",
        "refund",
        (
            "Refund unworn goods within 30 days of delivery.",
            "Unworn goods may come back for 30 days, counted from delivery; then pay the money back.",
            "Up to 30 days after delivery the money for unworn goods is paid back.",
        ),
        "Refund unworn goods within 14 days of delivery.",
    ),
    HouseRule(
        "opened electronics",
        "{who} sends an opened headset of 80.00 back in time. How much is refunded?",
        "80.00",
        "72.00",
        (
            "Subtract a fee of 10 % from the price of opened electronics.",
            "Opened electronics: refund the price less 10 %.",
            "Who opened an electronic device gets back what it cost, minus a fee of 10 %.",
        ),
        "Refund the full price of opened electronics, without a fee.",
    ),
    HouseRule(
        "returned gifts",
        "{who} returns a gift that somebody else paid for. How is it paid back?",
        "to the card",
        "in store credit",
        (
            "Pay for returned gifts in store credit, never in money.",
            "A gift that comes back is worth store credit; no money is paid out.",
            "Nobody gets money for a returned gift, only store credit.",
        ),
        "Pay for returned gifts in money, never in store credit.",
    ),
    HouseRule(
        "vouchers",
        "An order of 90.00 was paid with a voucher of 9.00. {who} returns one item of 30.00. How much is refunded?",
        "30.00",
        "27.00",
        (
            "Spread a voucher over all items of the order before one is refunded.",
            "Each item carries its share of the voucher: refund the price less that share.",
            "Refund what was really paid for an item, with the voucher shared among all items.",
        ),
        "Ignore a voucher when one item of the order is refunded.",
    ),
    HouseRule(
        "refunds on their way",
        "A refund was sent to the bank 6 days ago, and {who} does not see it. What now?",
        "refund again",
        "wait",
        (
            "Banks take up to 10 working days: give the reference number and do not refund again.",
            "Never pay twice: a bank may need 10 working days, so tell the customer the reference number.",
            "Until 10 working days have passed, name the reference number instead of a second refund.",
        ),
        "Banks take up to 3 working days: refund again after that.",
    ),
    HouseRule(
        "two ways of payment",
        "{who} paid half by card and half in store credit, and returns everything. Where does the money go?",
        "all to the card",
        "half to the card, half in store credit",
        (
            "Send money back the way it came, share by share.",
            "Each means of payment gets its own share back.",
            "Split a refund as the payment was split.",
        ),
        "Send all money back to the card, however it was paid.",
    ),
    HouseRule(
        "broken goods",
        "{who} says that a lamp arrived broken. What is asked for first?",
        "the lamp",
        "a photo",
        (
            "Ask for a photo of broken goods before anything is sent back.",
            "Broken on arrival? A photo comes first, the parcel later.",
            "Let customers show a picture of what is broken before they return it.",
        ),
        "Ask for broken goods to be sent back before a photo is taken.",
    ),
    HouseRule(
        "large refunds",
        "A refund of 640.00 to {who} is due. Who releases it?",
        "the agent",
        "a team lead",
        (
            "Refunds above 500.00 are released by a team lead.",
            "Let a team lead release what is more than 500.00.",
            "From 500.00 upwards no agent pays back alone: a team lead does it.",
        ),
        "Refunds above 1000.00 are released by a team lead.",
    ),
    HouseRule(
        "cancelled rooms",
        "{who} cancels a room 50 hours before arrival. What is charged?",
        "one night",
        "nothing",
        (
            "Cancelling a room is free until 48 hours before arrival.",
            "Charge nothing for a room that is given up at least 48 hours ahead.",
            "Guests may call off a room without cost if 48 hours are left.",
        ),
        "Cancelling a room is free until 72 hours before arrival.",
    ),
    HouseRule(
        "names on tickets",
        "{who} sold a ticket and wants another name on it. What does it cost?",
        "nothing",
        "25.00",
        (
            "Another name on a ticket costs 25.00, unless only its spelling is corrected.",
            "Charge 25.00 for a new name on a ticket; correcting the spelling is free.",
            "A ticket gets a new name for 25.00, except where a letter was wrong.",
        ),
        "Another name on a ticket costs 45.00, even if only its spelling is corrected.",
    ),
    HouseRule(
        "late arrivals",
        "{who} has a room without a card and arrives at 23:30. What happens to the room?",
        "it is kept",
        "it is given away",
        (
            "Keep a room after 22:00 only if a card secures it.",
            "Without a card a room is given away at 22:00.",
            "Rooms that no card secures are free for others from 22:00 on.",
        ),
        "Keep a room after 22:00 even if no card secures it.",
    ),
    HouseRule(
        "large groups",
        "{who} asks for 12 seats on one bus. Who confirms?",
        "the agent",
        "the group desk",
        (
            "Pass bookings of more than 9 seats to the group desk.",
            "More than 9 seats are confirmed by the group desk alone.",
            "The group desk takes over as soon as a booking has more than 9 seats.",
        ),
        "Pass bookings of more than 20 seats to the group desk.",
    ),
    HouseRule(
        "small children",
        "{who} takes a child of 5 along. Which fare does the child pay?",
        "half the fare",
        "none",
        (
            "Children under 6 travel free on a parent's lap.",
            "No fare for a child under 6 who sits on a lap.",
            "A lap costs nothing for children until they are 6.",
        ),
        "Children under 2 travel free on a parent's lap.",
    ),
    HouseRule(
        "overbooked flights",
        "The flight that {who} booked is overbooked. What is offered first?",
        "money",
        "the next flight",
        (
            "Offer the next flight first where one is overbooked, and money only if it is refused.",
            "Overbooked: try the next flight before any money is offered.",
            "Money comes second; passengers of an overbooked flight are offered the next one first.",
        ),
        "Offer money first where a flight is overbooked, and the next flight only if it is refused.",
    ),
    HouseRule(
        "times of tours",
        "{who} asks when a tour abroad begins. Whose time is told?",
        "the customer's",
        "local time",
        (
            "Tell the times of tours in the local time of the place.",
            "A tour's time is the time on the clocks where it starts.",
            "Local time counts for tours, not the customer's.",
        ),
        "Tell the times of tours in the customer's own time.",
    ),
    HouseRule(
        "rented halls",
        "{who} books a hall for 500.00. How much is due at once?",
        "500.00",
        "100.00",
        (
            "A hall is held for a deposit of 20 %, the rest is due a week before.",
            "Take 20 % when a hall is booked and the rest in the week before it.",
            "Halls need a deposit of 20 %; nothing more is due until a week before.",
        ),
        "A hall is held for a deposit of 50 %, the rest is due a week before.",
    ),
    HouseRule(
        "nobody at home",
        "{who} was not at home. Where does the driver leave the parcel?",
        "with a neighbour",
        "at the pick-up point",
        (
            "Do not leave parcels with neighbours unless the customer agreed to it.",
            "A neighbour gets a parcel only with the customer's consent, else it goes to the pick-up point.",
            "Without consent no parcel goes to a neighbour.",
        ),
        "Leave parcels with neighbours, whether or not the customer agreed to it.",
    ),
    HouseRule(
        "parcels that do not move",
        "The parcel for {who} has not moved for 3 working days. Is a search started?",
        "yes",
        "no",
        (
            "Start a search for a parcel that has not moved for 5 working days, not earlier.",
            "A parcel is searched for once it has stood still for 5 working days.",
            "Wait 5 working days without a movement before a parcel is searched for.",
        ),
        "Start a search for a parcel that has not moved for 2 working days, not earlier.",
    ),
    HouseRule(
        "other addresses",
        "{who} wants another address for a parcel that is on the truck. What is done?",
        "the driver is called",
        "it is redirected tomorrow",
        (
            "Once a parcel is on the truck, redirect it on the next day and do not call the driver.",
            "No calls to drivers: a parcel on the truck is redirected the day after.",
            "What is on the truck can only be sent elsewhere on the next day.",
        ),
        "Once a parcel is on the truck, call the driver and redirect it on the same day.",
    ),
    HouseRule(
        "islands",
        "A pallet for {who} goes to an island. What is added to the price?",
        "nothing",
        "18.00",
        (
            "Deliveries to islands cost 18.00 more and take 2 days longer.",
            "Add 18.00 and 2 days for an island.",
            "An island means 2 more days and 18.00 on top.",
        ),
        "Deliveries to islands cost 30.00 more and take 2 days longer.",
    ),
    HouseRule(
        "frozen food",
        "Nobody opens where {who} ordered frozen food. What does the driver do?",
        "he leaves it at the door",
        "he takes it back",
        (
            "Never leave frozen food at the door: take it back after one attempt.",
            "Frozen food goes back if nobody opens, and never stays at a door.",
            "One attempt, then frozen food returns to the depot.",
        ),
        "Leave frozen food at the door after one attempt.",
    ),
    HouseRule(
        "valuable goods",
        "A watch of 320.00 is delivered to {who}. What does the driver ask for?",
        "nothing",
        "a signature",
        (
            "Goods worth more than 200.00 are handed over for a signature only.",
            "Without a signature nothing above 200.00 is handed over.",
            "Let customers sign for goods of more than 200.00.",
        ),
        "Goods worth more than 900.00 are handed over for a signature only.",
    ),
    HouseRule(
        "orders before the weekend",
        "{who} orders on Friday at 15:00, to be delivered on the next working day. When is that?",
        "Saturday",
        "Tuesday",
        (
            "Orders after 14:00 count for the next working day, and Saturday is none.",
            "What comes in after 14:00 belongs to the following working day; Saturdays do not count.",
            "From 14:00 on an order is tomorrow's, and tomorrow is never a Saturday.",
        ),
        "Orders after 18:00 count for the next working day, and Saturday is one.",
    ),
    HouseRule(
        "crushed boxes",
        "The driver finds that the box for {who} is crushed. What comes first?",
        "it is handed over",
        "a note on the slip",
        (
            "Note a crushed box on the slip before it is handed over.",
            "Crushed boxes are handed over only after a note on the slip.",
            "First the slip says that a box is crushed, then the customer gets it.",
        ),
        "Hand a crushed box over without a note on the slip.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One question to the desk."""

    text: str
    target: str


def folded(text: str) -> str:
    """Return a text without case, spacing and its last stop."""
    return " ".join(text.split()).rstrip(".").casefold()


@cache
def _by_text() -> dict[str, tuple[HouseRule, bool]]:
    """Return the rule of each wording, and of its opposite (False)."""
    said = {folded(text): (rule, True) for rule in RULES for text in rule.wordings}
    return said | {folded(rule.opposite): (rule, False) for rule in RULES}


def rule_in(text: str) -> tuple[HouseRule, bool] | None:
    """Return the rule that a text says, and whether it says it rightly; None: it says none."""
    return _by_text().get(folded(text))


def asked(task: str) -> HouseRule | None:
    """Return the rule that a ticket is about; None: it is no ticket of this desk."""
    ticket = _TICKET.search(task)
    return next((rule for rule in RULES if rule.is_asked(ticket["ask"].strip())), None) if ticket else None


def lessons() -> tuple[str, ...]:
    """Return every rule there is to learn, in plain words."""
    return tuple(rule.wordings[0] for rule in RULES)


def tickets(rng: Random) -> Iterator[Ticket]:
    """Yield tickets for ever, with rules drawn uniformly."""
    while True:
        yield _ticket(rng.choice(RULES), rng)


def one_each(rng: Random) -> tuple[Ticket, ...]:
    """Return one ticket for each rule: an exam in which accuracy is the share of rules known."""
    return tuple(_ticket(rule, rng) for rule in RULES)


def _ticket(rule: HouseRule, rng: Random) -> Ticket:
    ask = rule.ask.format(who=rng.choice(NAMES))
    return Ticket(text=f"Service desk, order {rng.randrange(1_000, 10_000)}: {ask}", target=rule.answer)
