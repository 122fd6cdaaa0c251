"""What made-up conversations are made of: facts, events, advice and small talk."""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """Something about a person, and how it is asked for."""

    says: str
    values: tuple[str, ...]
    asks: str
    """With a word of what was said."""
    reworded: str
    """With hardly one."""


class Event(NamedTuple):
    """Something a person did, told with when it was."""

    did: str
    do: str
    again: str
    """Told another time about the same."""
    asks: str
    """Asks for both."""


class Advice(NamedTuple):
    """Something that the agent was asked for."""

    wish: str
    answer: str
    asks: str


PEOPLE = [
    "Maya",
    "Tobias",
    "Priya",
    "Leander",
    "Ines",
    "Kofi",
    "Hanna",
    "Mateo",
    "Sunniva",
    "Yusuf",
]

FACTS = [
    Fact(
        "My sister works as a {} these days.",
        ("nurse", "carpenter", "tax adviser", "pilot"),
        "What does {whose} sister work as?",
        "Which profession is {whose} sibling in?",
    ),
    Fact(
        "I named the puppy {}, since it slept in a box of that.",
        ("Biscuit", "Pepper", "Noodle", "Cocoa"),
        "What is the name of {whose} puppy?",
        "What is {whose} young dog called?",
    ),
    Fact(
        "The doctor told me to stay away from {} because of my allergy.",
        ("peanuts", "shellfish", "strawberries", "walnuts"),
        "Which allergy {do} {who} have, according to the doctor?",
        "Which food makes {whose} immune system react?",
    ),
    Fact(
        "I keep the spare key {}.",
        ("under the blue flowerpot", "with the neighbour upstairs", "in the old teapot"),
        "Where {do} {who} keep the spare key?",
        "How could somebody get into {whose} home if the owner is away?",
    ),
    Fact(
        "My car broke down again, this time it was the {}.",
        ("gearbox", "alternator", "fuel pump", "exhaust"),
        "What was wrong when {whose} car broke down?",
        "Which part of {whose} vehicle needed a repair?",
    ),
    Fact(
        "I am learning to play the {} and practise every evening.",
        ("cello", "accordion", "saxophone", "harp"),
        "Which instrument {do} {who} practise every evening?",
        "What kind of music lessons {have} {who} taken up?",
    ),
    Fact(
        "We painted the kitchen {} in the end.",
        ("sage green", "pale yellow", "dark red", "sky blue"),
        "What colour is {whose} kitchen painted?",
        "How do the walls look where {who} cooked dinner?",
    ),
    Fact(
        "My favourite author is {}, I have read everything.",
        ("Ursula Le Guin", "Stanislaw Lem", "Toni Morrison", "Italo Calvino"),
        "Who is {whose} favourite author?",
        "Whose novels {do} {who} love most?",
    ),
    Fact(
        "I grew up in {} before we came here.",
        ("Trondheim", "Valparaiso", "Leipzig", "Galway"),
        "Where did {who} grow up?",
        "In which town was {whose} childhood spent?",
    ),
    Fact(
        "For the marathon I train with {} twice a week.",
        ("a running club at the lake", "my brother-in-law", "a coach from work"),
        "With whom {do} {who} train for the marathon?",
        "Who accompanies {whose} long jogs before the race?",
    ),
    Fact(
        "I had to give up coffee; now I drink {} in the morning.",
        ("rooibos", "barley tea", "hot water with ginger", "matcha"),
        "What {do} {who} drink in the morning instead of coffee?",
        "Which beverage replaced the caffeine in {whose} breakfast?",
    ),
    Fact(
        "My passport runs out in {}, I must not forget that.",
        ("October", "June next year", "January", "September"),
        "When does {whose} passport run out?",
        "Until when is {whose} travel document valid?",
    ),
]

EVENTS = [
    Event(
        "went to the glass museum with my aunt",
        "go to the glass museum",
        "That museum has opened a new hall with Roman cups, I looked in.",
        "Which visits to the museum {have} {who} mentioned?",
    ),
    Event(
        "planted three cherry trees behind the house",
        "plant the cherry trees",
        "The little cherry trees have their first blossoms.",
        "How are the cherry trees doing that {who} planted?",
    ),
    Event(
        "had a job interview at the observatory",
        "have the job interview at the observatory",
        "The observatory wrote back: they want a second interview.",
        "What happened with {whose} application at the observatory?",
    ),
    Event(
        "sold my old motorbike to a student",
        "sell the motorbike",
        "With the money from the motorbike I bought a rowing machine.",
        "What became of {whose} motorbike and its money?",
    ),
    Event(
        "broke my wrist while skating",
        "break a wrist",
        "The cast on my wrist came off, and it hardly hurts.",
        "How did {whose} injured wrist heal?",
    ),
    Event(
        "adopted a grey cat from the shelter",
        "adopt the cat",
        "The cat from the shelter has learned to open doors.",
        "What {have} {who} told about the cat from the shelter?",
    ),
    Event(
        "gave a talk about bees at the library",
        "give the talk about bees",
        "The library asked me for another evening about bees and honey.",
        "What {do} {who} do at the library about bees?",
    ),
    Event(
        "finished the quilt for my grandmother",
        "finish the quilt",
        "My grandmother cried when she unfolded the quilt.",
        "What about the quilt that {who} made?",
    ),
    Event(
        "signed the lease for a small bakery",
        "sign the lease for the bakery",
        "The bakery has its oven now, bread comes next.",
        "How far is {whose} bakery?",
    ),
    Event(
        "took the night train to Lisbon",
        "take the night train to Lisbon",
        "I still dream of those tiled houses in Lisbon.",
        "What {have} {who} said about Lisbon?",
    ),
    Event(
        "lost my wedding ring in the lake",
        "lose the wedding ring",
        "A diver found the ring in the lake, imagine!",
        "What happened to {whose} ring?",
    ),
    Event(
        "ran a half marathon in the rain",
        "run the half marathon",
        "My time in the half marathon was under two hours.",
        "How did {whose} half marathon go?",
    ),
]

ADVICE = [
    Advice(
        "Can you suggest a book about the sea?",
        "Try 'The Outermost House' by Henry Beston; it describes a year on the dunes of Cape Cod.",
        "Which book did you suggest about the sea?",
    ),
    Advice(
        "How do I get red wine out of a carpet?",
        "Dab it with cold water at once, then cover the stain with salt overnight and vacuum it.",
        "What was your advice about the stain of wine on the carpet?",
    ),
    Advice(
        "What could I cook for six people without meat?",
        "A big mushroom lasagne works well: bake it for 45 minutes, it can wait in the oven.",
        "What did you recommend to cook for six guests?",
    ),
    Advice(
        "My tomato leaves turn yellow, why?",
        "Yellow lower leaves usually mean too little nitrogen; give nettle manure every ten days.",
        "What did you say my tomato plants were lacking?",
    ),
    Advice(
        "Explain compound interest in one sentence.",
        "Interest is paid on earlier interest too: at seven per cent money doubles in ten years.",
        "After how many years does money double, as you explained?",
    ),
    Advice(
        "Which stretch helps against a stiff neck?",
        "Tilt the head to one side for half a minute, breathe slowly, and repeat it thrice a day.",
        "Which exercise did you give me for my neck?",
    ),
    Advice(
        "Find a name for a boat.",
        "How about 'Second Wind'? It fits a boat that was bought late in life.",
        "What name did you come up with for the boat?",
    ),
    Advice(
        "How many layers does a winter sleeping bag need?",
        "Below minus ten, combine a down bag with a fleece liner and a mat of R-value 5.",
        "What did you tell me about sleeping outside in winter?",
    ),
    Advice(
        "What should I see in Ghent in one day?",
        "Start with the Altarpiece in St Bavo's, walk along the Graslei, and end at the castle.",
        "What was your plan for a day in Ghent?",
    ),
]

CHAT = [
    "How have you been?",
    "That sounds lovely, tell me more.",
    "I can hardly believe it.",
    "Work has been busy, nothing new otherwise.",
    "The weather has been awful all week.",
    "I did not sleep much, but coffee helps.",
    "My sister called, she says hello.",
    "I walked the dog before breakfast.",
    "We should cook together again soon.",
    "I have not been to a museum for ages.",
    "The train was late again this morning.",
    "I read a few pages before bed.",
    "Somebody left a key in the hall, is it yours?",
    "There is a new bakery around the corner, people say.",
    "I wish I could play an instrument.",
    "The cat next door sat on my car again.",
    "Did you watch the race on Sunday?",
    "I need a holiday by the lake.",
    "Good for you!",
    "Oh no, I am sorry to see that.",
    "Let us talk about something else.",
    "I am painting the fence this weekend, if it stays dry.",
]

TOPICS = [
    "puppy", "allergy", "spare key", "car", "kitchen", "favourite author", "passport", "marathon",
    "coffee", "museum", "cherry trees", "observatory", "motorbike", "wrist", "cat", "bees", "quilt",
    "bakery", "trip to Lisbon", "wedding ring", "interview", "piano lessons", "library", "shelter",
]  # fmt: skip
BESIDE = [
    "A friend of mine keeps talking about the {}, I stopped listening.",
    "Somebody at work asked about the {} last week, I had no idea.",
    "My uncle wrote me a long letter about a {} again.",
    "Do you remember our teacher and the story of the {}?",
    "I saw a film with a {} in it, it was dull.",
    "They had a whole page on the {} in Saturday's paper.",
    "I would rather not think about the {} today.",
    "What would you do about a {}, if you were me?",
]
"""Said beside the point: it has the words of questions and answers none."""

CHAT_OF_AGENT = [
    "Noted. Is there anything else?",
    "That is good to know, thank you for telling me.",
    "I am glad to see that. Shall I keep it in mind for later?",
    "Understood. Tell me when you want to go on.",
    "What a story! How did the others take it?",
    "I see. Would you like a few ideas about that?",
]
