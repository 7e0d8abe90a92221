"""Names of files, columns and values; splits share no names.

Column names are in Title Case with two or more words, values in lower case with two.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import Literal

from agentgym.core.task import Split
from agentgym.scenarios.wording import split_of

Format = Literal["csv", "jsonl", "parquet"]


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of dataset.

    Attributes:
        stem: The beginning of its files' names.
        categories: Names of category columns, by the kind of their values.
        gaps: Share of missing values in columns that have any.
    """

    stem: str
    format: Format
    numbers: tuple[str, ...]
    categories: dict[str, tuple[str, ...]]
    dates: tuple[str, ...]
    rows: tuple[int, int]
    gaps: float = 0.0
    mixed: bool = False
    """Whether it also has a column of codes and one of booleans."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.replace("\n", " ").split(","))


DOMAINS: dict[str, Domain] = {
    "sales": Domain(
        "sales",
        "csv",
        _names(
            "Net Revenue, Gross Sales, Unit Price, Units Sold, Order Value, "
            "Discount Rate, Unit Cost, Gross Margin, Shipping Fee, Tax Amount, "
            "Basket Size, Refund Amount, List Price, Commission Paid, Net Profit, "
            "Invoice Amount, Handling Charge, Coupon Value, Items Ordered, Sales Volume"
        ),
        {
            "item": _names(
                "Product Line, Product Name, Item Group, Article Type, Brand Name"
            ),
            "place": _names(
                "Sales Region, Store Location, Ship Region, Customer Area, Home Market"
            ),
            "group": _names(
                "Sales Channel, Sales Team, Customer Segment, Price Tier, Partner Type"
            ),
        },
        _names("Order Date, Sale Date, Invoice Date, Booking Date, Purchase Date"),
        (240, 420),
    ),
    "behaviour": Domain(
        "events",
        "jsonl",
        _names(
            "Session Minutes, Page Views, Click Count, Scroll Depth, Search Count, "
            "Cart Size, Video Seconds, Load Time, Login Count, Messages Sent, "
            "Bounce Score, Idle Minutes, Files Shared, Posts Read, Ads Seen, "
            "Songs Played, Taps Made, Friends Added, Screen Time, Error Count"
        ),
        {
            "item": _names(
                "Landing Page, App Feature, Content Type, Entry Screen, Device Model"
            ),
            "place": _names(
                "User Country, Login City, Signup Region, Home Town, Network Area"
            ),
            "group": _names(
                "Plan Type, User Cohort, Traffic Source, Campaign Group, Account Role"
            ),
        },
        _names("Event Date, Visit Date, Session Date, Activity Date, Login Date"),
        (240, 420),
    ),
    "series": Domain(
        "series",
        "csv",
        _names(
            "Power Load, Water Flow, Mean Temperature, Air Pressure, Wind Speed, "
            "Traffic Volume, Fuel Usage, Noise Level, Heat Output, Gas Consumption, "
            "Solar Yield, River Level, Pump Speed, Dust Level, Light Intensity, "
            "Coolant Flow, Engine Hours, Steam Pressure, Battery Charge, Tank Level"
        ),
        {
            "item": _names(
                "Sensor Model, Pump Type, Meter Type, Probe Kind, Logger Model"
            ),
            "place": _names(
                "Station Name, Plant Site, Grid Zone, Valley Sector, Field Office"
            ),
            "group": _names(
                "Operating Mode, Shift Crew, Alarm Class, Tariff Group, Service Level"
            ),
        },
        _names(
            "Reading Date, Measured Day, Sample Date, Logging Date, Observation Day"
        ),
        (360, 540),
    ),
    "mixed": Domain(
        "survey",
        "csv",
        _names(
            "Monthly Salary, Weekly Hours, Training Days, Satisfaction Score, "
            "Commute Minutes, Sick Days, Overtime Hours, Bonus Paid, Test Score, "
            "Years Employed, Rent Paid, Household Size, Sleep Hours, Stress Index, "
            "Steps Walked, Coffee Cups, Books Read, Pension Rate, Travel Cost, "
            "Meeting Hours"
        ),
        {
            "item": _names(
                "Laptop Model, Desk Type, Lunch Choice, Car Model, Phone Brand"
            ),
            "place": _names(
                "Office Location, Birth Region, Work Site, Home District, Campus Area"
            ),
            "group": _names(
                "Job Family, Contract Type, Team Name, Career Level, Age Band"
            ),
        },
        _names("Hire Date, Survey Date, Review Date, Entry Date, Response Date"),
        (240, 420),
        gaps=0.12,
        mixed=True,
    ),
    "logistics": Domain(
        "shipments",
        "parquet",
        _names(
            "Parcel Weight, Route Distance, Delivery Hours, Freight Cost, Delay Hours, "
            "Pallet Count, Customs Fee, Loading Minutes, Toll Cost, Truck Fill, "
            "Stops Made, Storage Days, Insurance Fee, Box Volume, Engine Idle, "
            "Diesel Used, Return Rate, Damage Cost, Queue Minutes, Pick Time"
        ),
        {
            "item": _names(
                "Cargo Type, Package Kind, Truck Model, Container Type, Goods Class"
            ),
            "place": _names(
                "Origin Hub, Target Region, Transit Port, Depot Name, Drop Zone"
            ),
            "group": _names(
                "Carrier Name, Service Class, Client Tier, Driver Crew, Contract Group"
            ),
        },
        _names("Ship Date, Dispatch Date, Arrival Date, Pickup Date, Delivery Date"),
        (300, 480),
    ),
}

_VALUES = {
    "item": (
        "oak steel copper linen marble bamboo velvet ceramic walnut rubber",
        "table kettle lamp chair bottle ladder basket mirror hammer carpet shelf tray",
    ),
    "place": (
        "north south east west upper lower inner outer old new",
        "harbor valley ridge meadow castle bridge forest market island station",
    ),
    "group": (
        "partner web field night prime basic core direct junior senior",
        "desk team circle crew class league office branch guild unit",
    ),
}


@cache
def values(kind: str, split: Split) -> list[str]:
    """The values of category columns of a kind."""
    first, second = (words.split() for words in _VALUES[kind])
    return split_of([f"{a} {b}" for a, b in itertools.product(first, second)], split)


@cache
def columns(domain: str, split: Split) -> tuple[list[str], dict[str, list[str]], str]:
    """Names for a domain's number columns, category columns and date column."""
    names = DOMAINS[domain]
    return (
        split_of(names.numbers, split),
        {kind: split_of(some, split) for kind, some in names.categories.items()},
        split_of(names.dates, split)[0],
    )
