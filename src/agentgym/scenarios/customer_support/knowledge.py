"""The shop's help articles, and the entities that tasks draw from.

Product names are singular nouns without an article, so that "the", "my" or "new" can
precede them. Names, streets and cities are plain ASCII and may become part of an e-mail
address. All mail domains are invented or reserved for documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym.scenarios.customer_support.phrases import sections


@dataclass(frozen=True, slots=True)
class Article:
    """A help article and customers' questions about it (templates, see `phrases`)."""

    topic: str
    title: str
    body: str
    questions: tuple[str, ...]


def _read(topic: str, title: str, body: str, *questions: str) -> Article:
    return Article(
        topic, title.removeprefix("title: "), body.removeprefix("body: "), questions
    )


ARTICLES: list[Article] = [_read(*lines) for lines in sections("articles.txt")]


def _words(text: str) -> list[str]:
    return text.split()


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.replace("\n", " ").split(",")]


_PRODUCTS_BY_CATEGORY: dict[str, str] = {
    "electronics": """
        wireless mouse, bluetooth speaker, tablet, e-reader, webcam,
        mechanical keyboard, noise-cancelling headset, smart watch, digital camera,
        external hard drive, desktop monitor, wifi router, portable projector,
        alarm clock, turntable, laser printer, car dashcam, usb microphone
    """,
    "clothing": """
        rain jacket, wool sweater, denim shirt, evening dress, leather belt,
        winter coat, baseball cap, silk scarf, linen blazer, pleated skirt,
        hooded sweatshirt, bathrobe, cardigan, polo shirt, waistcoat, sun hat, jumpsuit
    """,
    "furniture": """
        office chair, bookshelf, coffee table, nightstand, corner sofa, bar stool,
        shoe cabinet, standing desk, dining table, armchair, coat rack, bed frame,
        tv bench, floor lamp, dresser, rocking chair, wall mirror
    """,
    "kitchen": """
        stand mixer, frying pan, espresso maker, knife block, salad bowl, rice cooker,
        waffle iron, cutting board, food processor, soup ladle, baking tray, teapot,
        pepper mill, bread box, milk frother, casserole dish, kitchen scale
    """,
    "toys": """
        board game, wooden train, doll house, toy kitchen, plush rabbit, kite,
        marble run, play tent, balance bike, toy robot, finger puppet, rocking horse,
        jigsaw puzzle, pirate ship, water pistol, memory game, toy tractor
    """,
    "sports": """
        yoga mat, tennis racket, camping tent, sleeping bag, basketball, rowing machine,
        hiking backpack, skateboard, jump rope, exercise bike, swim cap, punching bag,
        ski helmet, football, fishing rod, table tennis bat, foam roller
    """,
}

PRODUCTS: list[tuple[str, str]] = [
    (name, category)
    for category, names in _PRODUCTS_BY_CATEGORY.items()
    for name in _items(names)
]

FIRST_NAMES: list[str] = _words("""
    Ada Adam Agnes Aisha Alan Albert Alice Amara Amir Ana Andre Anika Anton Arjun
    Astrid Ayumi Barbara Beatriz Ben Bianca Boris Bruno Camila Carlos Carmen Cedric
    Chen Chiara Chloe Clara Conor Dalia Damian Daniel Daria David Deepa Diego Dmitri
    Dora Edith Edgar Elena Elias Ella Emil Emre Erik Esther Ethan Eva Fatima Felix
    Fiona Florian Frida Gabriel George Giulia Grace Greta Hamza Hana Hannah Harold
    Hassan Heidi Helen Henrik Hugo Ibrahim Ines Ingrid Irene Isaac Ivan Jade Jakub
    James Jasmin Joan Johan Jorge Julia Kamal Karin Keiko Kenji Kofi Lars Laura Leila
    Leo Liam Lina Lorenzo Lucia Luis Magda Malik Marco Maria Marta Mateo Maya Mei
    Mila Milan Mona Nadia Naomi Nikolai Nils Nina Noah Noor Olga Oliver Omar Oscar
    Paula Pedro Petra Priya Rafael Rania Ravi Rebecca Robin Rosa Ruth Samir Sandra
    Selma Simon Sofia Stefan Tamara Tariq Thea Theo Tomas Uma Vera Victor Wanda Yara
    Yusuf Zoe
""")

LAST_NAMES: list[str] = _words("""
    Abbott Adeyemi Ahmed Almeida Andersen Bailey Baker Banerjee Barnes Bauer Becker
    Bianchi Blake Borg Brandt Brooks Calder Campbell Castillo Chandra Chang Clarke
    Costa Crawford Dahl Dalton Delgado Diaz Dixon Dubois Duarte Eklund Ellis Engel
    Esposito Evans Farouk Ferrari Fischer Fleming Fonseca Foster Franklin Fuchs Garcia
    Gibson Goldberg Gomez Graham Greene Gupta Haas Haddad Hansen Harper Hayashi Hoffman
    Holm Horvat Hughes Hussain Ibanez Ivanov Jansen Jensen Johansson Kaplan Karlsson
    Kaya Keller Khan Kimura Klein Kovacs Kowalski Kumar Lambert Larsen Laurent Leclerc
    Lehmann Lindgren Lopez Lund MacLeod Marchetti Marino Martens Mbeki McCarthy Mehta
    Mendoza Meyer Moreau Moretti Murphy Nakamura Navarro Nguyen Nielsen Novak Nowak
    Okafor Olsen Ortega Osman Owens Palmer Parker Patel Pereira Petrov Popescu Quinn
    Rahman Ramirez Reyes Ricci Rossi Sanders Santos Sato Schmidt Schneider Silva Singh
    Sorensen Stewart Suzuki Takeda Tanaka Torres Turner Ueda Vargas Vasquez Vogel Wagner
    Walsh Weber Wright Yamada Yilmaz Young Zhang Zimmer
""")

STREETS: list[str] = _items("""
    Abbey Road, Acorn Lane, Albert Street, Alder Close, Anchor Road, Ash Grove,
    Baker Street, Bank Street, Barn Hill, Beech Avenue, Bell Lane, Birch Drive,
    Bishop Street, Bluebell Way, Bridge Street, Broad Lane, Brook Street, Canal Street,
    Castle Road, Cedar Avenue, Chapel Lane, Cherry Tree Lane, Chestnut Road,
    Church Street, Clifton Terrace, Coach Road, College Road, Copper Lane,
    Coronation Avenue, Cross Street, Dale View, Dock Street, Dove Close, Eagle Street,
    East Parade, Elm Grove, Factory Lane, Falcon Way, Farm Road, Ferry Lane,
    Field View, Forest Drive, Fountain Street, Foxglove Close, Garden Street,
    George Street, Glebe Road, Grange Avenue, Green Lane, Harbour Road, Hawthorn Way,
    Hazel Grove, High Street, Hill Rise, Holly Road, Ivy Lane, Juniper Close,
    Kestrel Drive, King Street, Lake View, Larch Road, Lavender Hill, Lime Avenue,
    Linden Road, Long Acre, Magnolia Drive, Manor Road, Maple Avenue, Market Street,
    Meadow Lane, Mill Road, Moorland Way, Nelson Street, New Road, North Parade,
    Oak Lane, Old Mill Lane, Orchard Street, Oxford Road, Park Avenue, Pear Tree Close,
    Pine Street, Poplar Road, Priory Lane, Quarry Road, Queen Street, Railway Terrace,
    Rectory Lane, River Walk, Rose Street, Rowan Drive, School Lane, Silver Street,
    Spring Gardens, Station Road, Sycamore Avenue, Temple Street, Union Street,
    Victoria Road, Walnut Close, Water Lane, Westfield Road, Willow Way, Windmill Hill,
    York Street
""")

CITIES: list[str] = _items("""
    Aberdeen, Amsterdam, Antwerp, Athens, Austin, Barcelona, Basel, Bath, Belfast,
    Bergen, Berlin, Bilbao, Birmingham, Bologna, Bordeaux, Boston, Bradford, Bremen,
    Brighton, Bristol, Brno, Bruges, Brussels, Budapest, Cambridge, Canterbury,
    Cardiff, Carlisle, Chester, Chicago, Cologne, Copenhagen, Cork, Coventry, Dallas,
    Denver, Derby, Dresden, Dublin, Dundee, Durham, Edinburgh, Exeter, Florence,
    Frankfurt, Galway, Geneva, Genoa, Ghent, Glasgow, Gloucester, Granada, Graz,
    Hamburg, Hanover, Helsinki, Hereford, Houston, Hull, Inverness, Ipswich, Krakow,
    Lancaster, Leeds, Leicester, Leipzig, Lille, Limerick, Lincoln, Lisbon, Liverpool,
    London, Lyon, Madrid, Malmo, Manchester, Milan, Montreal, Munich, Nantes, Naples,
    New York, Newcastle, Norwich, Nottingham, Oslo, Oxford, Palermo, Paris, Perth,
    Plymouth, Porto, Portsmouth, Prague, Preston, Reading, Rotterdam, Salzburg,
    San Diego, Seattle, Seville, Sheffield, Southampton, Stockholm, Sunderland,
    Swansea, Toronto, Toulouse, Turin, Utrecht, Valencia, Vancouver, Verona, Vienna,
    Warsaw, Winchester, Worcester, York, Zurich
""")

MAIL_DOMAINS: list[str] = _words("""
    example.com example.org example.net mail.example.org post.example.com
    home.example.net inbox.example.com family.example.org web.example.net
    office.example.com brightmail.test postbox.test quickletter.test mailnest.test
    bluepost.example papermail.example inkwell.example letterbox.example
    cloudpost.example northmail.example fastpost.test homeinbox.test citymail.test
    lakemail.example sunpost.example alpenpost.test nordbrev.example correo.test
    postino.example courriel.test brieftaube.example skrzynka.test openletter.example
    mailharbor.test greenpost.example riverpost.test
""")

CARRIERS: list[str] = [
    "Swift Parcel",
    "Blue Van Express",
    "Northline Logistics",
    "Pigeon Post",
    "Harbour Freight Couriers",
    "Metro Delivery",
    "Red Kite Shipping",
    "DayRunner",
]
