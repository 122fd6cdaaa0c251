"""What a small model is shown, and how its reply is read."""

from typing import Any

import orjson
import pytest

from asterism.models.embedded.prompt import ReplyFilter, render
from asterism.models.embedded.supervisor import StopGeneration
from asterism.models.openai import ChatReplyParser
from asterism.ports import ModelRequest
from asterism.types.turns import Reply, text_of


def function(name: str, about: str, **members: dict[str, object]) -> dict[str, object]:
    schema = {"type": "object", "properties": members, "required": list(members)}
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": schema},
    }


WEATHER = function("weather", "Forecast for a place.", place={"type": "string"})
REMIND = function("remind", "Set a reminder.", text={"type": "string"}, minutes={"type": "integer"})
MANY = [
    function(f"tool_{n}", f"Does the thing number {n}.", x={"type": "string"}) for n in range(20)
]
MANY.extend((WEATHER, REMIND))


def wire(role: str, text: str | None, **fields: object) -> bytes:
    return orjson.dumps({"role": role, "content": text, **fields})


def request(*messages: bytes, tools: list[dict[str, object]] | None = None, **fields: object):
    said = [wire("system", "You are Aria."), *messages]
    given = orjson.dumps(tools) if tools else None
    return ModelRequest("small", said, given, "turn_1/0/reply", 20.0, **fields)  # pyright: ignore[reportArgumentType] - fields of any kind


def shown(*messages: bytes, tools: list[dict[str, object]] | None = None, **fields: object):
    prompt = render(request(*messages, tools=tools, **fields))
    return [orjson.loads(message) for message in prompt.messages]


CALL = wire(
    "assistant",
    None,
    tool_calls=[
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"place": "Rome"}'},
        }
    ],
)
RESULT = wire("tool", "Sunny.", tool_call_id="c1")
STEPS = (
    wire("user", "Will it rain in Rome? I want the forecast."),
    CALL,
    RESULT,
    wire("assistant", "No, it is sunny."),
    wire("user", "Then remind me of sunscreen in ten minutes."),
    wire("assistant", "I will."),
    wire("user", "Thanks!"),
)


@pytest.mark.promise("M12")
@pytest.mark.parametrize("tools", [[WEATHER, REMIND], MANY, None], ids=["few", "many", "none"])
def test_a_longer_conversation_begins_with_the_bytes_of_a_shorter_one(
    tools: list[dict[str, object]] | None,
):
    steps = STEPS if tools else (STEPS[0], STEPS[3], STEPS[4])
    before = render(request(tools=tools)).messages
    for length in range(1, len(steps) + 1):
        after = render(request(*steps[:length], tools=tools)).messages
        assert after[: len(before)] == before
        before = after


def test_few_tools_stand_in_the_prefix_once_and_on_one_line_each():
    system = shown(wire("user", "Hi"), tools=[WEATHER, REMIND])[0]
    assert system["role"] == "system"
    assert "- weather(place: string): Forecast for a place." in system["content"].splitlines()
    assert system["content"].startswith("You are Aria.")


def test_of_many_tools_those_that_share_words_with_the_message_are_offered():
    asked = request(wire("user", "What is the weather forecast for Rome?"), tools=MANY)
    prompt = render(asked)
    assert "weather" in prompt.names
    assert len(prompt.names) <= 8
    assert "- weather(" in orjson.loads(prompt.messages[-1])["content"]
    assert b"- weather(" not in prompt.messages[0]
    later = render(request(*STEPS[:1], STEPS[3], STEPS[4], tools=MANY))
    assert {"weather", "remind"} <= set(later.names)


def test_results_are_told_with_the_name_of_their_tool():
    said = shown(*STEPS[:3], tools=[WEATHER])
    assert said[-2] == {"role": "assistant", "content": 'tool: weather\n{"place": "Rome"}'}
    assert said[-1] == {"role": "user", "content": "[result of weather] Sunny."}


TOLD = "[asterism] weather: Sunny.\nAnswer my message with this."


def test_without_tools_the_conversation_is_passed_on_as_it_is():
    system, *said = shown(*STEPS)
    assert system["role"] == "system"
    assert system["content"].startswith("You are Aria. ")
    assert said[-5:] == [
        {"role": "user", "content": f"{text_of(STEPS[0])}\n{TOLD}"},
        *(orjson.loads(step) for step in STEPS[3:]),
    ]
    assert render(request(*STEPS)).grammar() is None


def test_tools_for_one_message_stand_at_its_end_with_an_example_of_their_use():
    schedule = function("schedule", "Send a message to yourself later.", when={"type": "string"})
    plain = render(request(*STEPS))
    prompt = render(request(*STEPS, message_tools=orjson.dumps([schedule])))
    assert prompt.messages[:-1] == plain.messages[:-1]
    assert prompt.names == ("schedule",)
    offer = orjson.loads(prompt.messages[-1])["content"]
    assert offer.startswith("Thanks!\n")
    assert "- schedule(when: string): Send a message to yourself later." in offer.splitlines()
    assert '"when": "TIME"' in offer
    assert (prompt.grammar() or "").splitlines()[1] == "start: words | call_0"
    assert 'words: "tool: none"\n' in (prompt.grammar() or ""), "words are asked for without tools"
    assert prompt.chooses
    assert not plain.chooses
    reply = prompt.read(Reply('tool: schedule\n{"when": "at 9"}'))
    assert reply is not None
    assert [call.name for call in reply.calls] == ["schedule"]


@pytest.mark.promise("M12")
def test_tools_for_one_message_leave_no_trace_in_a_longer_conversation():
    schedule = orjson.dumps([function("schedule", "Send it later.", when={"type": "string"})])
    plain = [render(request(*STEPS[:length])).messages for length in range(1, len(STEPS) + 1)]
    for length, before in enumerate(plain, 1):
        prompt = render(request(*STEPS[:length], message_tools=schedule))
        assert prompt.messages[: len(before) - 1] == before[:-1]


def test_tools_for_one_message_join_those_that_every_message_has():
    prompt = render(
        request(wire("user", "Hi"), tools=[WEATHER], message_tools=orjson.dumps([REMIND]))
    )
    assert prompt.names == ("weather", "remind")
    assert b"- weather(" in prompt.messages[0]
    assert b"- remind(" in prompt.messages[-1]


def test_images_are_named_but_not_sent():
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": "…"}]
    said = shown(orjson.dumps({"role": "user", "content": parts}))
    assert said[-1]["content"] == "What is it?\n[image_url: cannot be seen]"


@pytest.mark.parametrize(
    ("choice", "starts"),
    [
        ("auto", "start: words | call_0 | call_1"),
        ("none", "start: words"),
        ("required", "start: call_0 | call_1"),
        ("remind", "start: call_0"),
    ],
)
def test_the_grammar_allows_what_the_choice_of_tools_allows(choice: str, starts: str):
    asked = request(wire("user", "Hi"), tools=[WEATHER, REMIND], tool_choice=choice)
    grammar = render(asked).grammar() or ""
    assert grammar.splitlines()[1] == starts
    assert ('"tool: remind\\n"' in grammar) == (choice != "none")


def test_a_tight_grammar_bounds_strings_and_lists():
    lists = function("note", "Note.", items={"type": "array", "items": {"type": "string"}})
    prompt = render(request(wire("user", "Hi"), tools=[lists]))
    assert "maxLength" not in (prompt.grammar() or "")
    assert '"maxItems":4' in (prompt.grammar(tight=True) or "")
    assert '"maxLength":160' in (prompt.grammar(tight=True) or "")


def read(text: str, finish: str = "stop") -> Reply | None:
    prompt = render(request(wire("user", "Hi"), tools=[WEATHER]))
    return prompt.read(Reply(text, finish=finish))


def test_a_call_is_read_and_has_the_same_id_in_a_repeat():
    reply = read('tool: weather\n{"place": "Rome"}')
    assert reply is not None
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("weather", '{"place": "Rome"}')
    ]
    assert reply.finish == "tool_calls"
    again = read('tool: weather\n{"place": "Rome"}')
    assert again is not None
    assert again.calls[0].id == reply.calls[0].id


@pytest.mark.parametrize(
    "text", ['tool: weather\n{"place": "Ro', "tool: weather\n", 'tool: weather\n["Rome"]']
)
def test_a_call_that_was_cut_off_is_none(text: str):
    assert read(text, "length") is None


@pytest.mark.parametrize(
    ("text", "words"), [("tool: none\nHello.", "Hello."), ("tool: none\n", ""), ("tool", "")]
)
def test_words_are_read_without_their_first_line(text: str, words: str):
    reply = read(text)
    assert reply is not None
    assert (reply.text, reply.calls) == (words, ())


def sift(text: str, size: int) -> tuple[str, ReplyFilter]:
    said: list[str] = []
    prompt = render(request(wire("user", "Hi"), tools=[WEATHER]))
    sieve = ReplyFilter(prompt, lambda _, piece: said.append(piece))
    for start in range(0, len(text), size):
        sieve("text", text[start : start + size])
    return "".join(said), sieve


@pytest.mark.parametrize("size", [1, 3, 100])
def test_only_words_are_streamed(size: int):
    assert sift("tool: none\nHello, you.\nBye.", size)[0] == "Hello, you.\nBye."
    assert sift('tool: weather\n{"place": "Rome"}', size)[0] == ""


def test_a_model_that_repeats_itself_is_stopped_and_its_words_are_kept_once():
    prompt = render(request(wire("user", "Hi")))
    sieve = ReplyFilter(prompt, None)
    sieve("text", "A start. ")

    def go_on() -> None:
        for _ in range(200):
            sieve("text", "I am late again. ")

    with pytest.raises(StopGeneration):
        go_on()
    assert sieve.text.count("late") == 1
    assert sieve.text.startswith("A start.")


def test_lists_and_refrains_are_no_repetition():
    text = "".join(f"{n}. Item {n} of the list, which goes on. " for n in range(60))
    assert sift("tool: none\n" + text, 4)[0] == text


def last(*messages: bytes, **fields: Any) -> list[str]:
    return shown(*messages, **fields)[-1]["content"].splitlines()


def test_notes_stand_behind_their_message_and_times_are_left_out():
    note = wire("user", "[asterism] Worked out exactly: 6 * 7 = 42.")
    asked = wire("user", "[Tue 2026-11-17 14:05] What is six times seven?")
    assert last(note, asked) == [
        "What is six times seven?",
        "[asterism] Worked out exactly: 6 * 7 = 42.",
        "So, What is six times seven?",  # what a small model reads last, it heeds
    ]


def test_a_small_model_is_told_its_name_when_it_is_asked_for_it():
    assert last(wire("user", "who am i talking to?"))[1:] == ["[asterism] You are Aria."]
    assert last(wire("user", "Wie heißt du?"))[2:] == ["[asterism] You are Aria."]
    assert last(wire("user", "Who sings this?"))[1:] == []


@pytest.mark.parametrize(
    ("said", "question", "quoted"),
    [
        (["My cat is Miso.", "It rains."], "Who is my cat?", ["My cat is Miso.", "It rains."]),
        (["Mein Zug fährt von Gleis 9."], "Wo fährt mein Zug?", ["Mein Zug fährt von Gleis 9."]),
        (["My cat is called Miso."], "My cat sleeps.", []),
        (["My cat is called Miso."], "What is a comet?", []),
        (["My cat is called Miso."], "What should my cat eat?", []),
        (["My cat is called Miso."], "For my quiz: what is the capital of Peru?", []),
        (["My cat is called Miso."], "How old was he when he died?", []),
        (["Where is my cat?"], "How old is my cat?", []),
    ],
)
def test_a_question_about_its_owner_is_followed_by_what_they_said(
    said: list[str], question: str, quoted: list[str]
):
    talk = [step for text in said for step in (wire("user", text), wire("assistant", "I see."))]
    notes = [line for line in last(*talk, wire("user", question)) if "said before" in line]
    text = "; ".join(f'"{one}"' for one in quoted)
    assert notes == ([f"[asterism] Your owner said before: {text}"] if quoted else [])


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Welche Farbe hat mein Auto?", "German"),
        ("¿Cómo se llama mi perro?", "Spanish"),
        ("元気ですか？", "Japanese"),
        ("Do red ones cook faster than green ones?", None),
        ("ok", None),
    ],
)
def test_a_small_model_is_told_in_which_language_to_answer(text: str, language: str | None):
    hints = [line for line in last(wire("user", text)) if "Answer in" in line]
    assert hints == ([f"(Answer in {language}.)"] if language else [])


@pytest.mark.parametrize(
    ("text", "reminded"),
    [
        ("What is my sister's name?", True),
        ("Welche Farbe hat mein Auto?", True),
        ("母の誕生日はいつですか？", True),
        ("What is a comet?", False),
        ("My sister is called Ann.", False),
        ("What should I cook for my brother?", False),
    ],
)
def test_a_small_model_is_reminded_that_it_may_not_know(text: str, reminded: bool):
    assert any("say that you do not know" in line for line in last(wire("user", text))) is reminded
    note = wire("user", "[asterism] From your memory: Ann is a sister of your owner.")
    assert not any("say that you do not know" in line for line in last(note, wire("user", text)))


def test_the_tokens_of_a_prompt_are_known_before_the_answer_ends():
    """A reply that is stopped, since it repeats itself, has no usage of its own."""
    sieve = ReplyFilter(render(request(wire("user", "Hi!"))), None)
    parser = ChatReplyParser(sieve, sieve.note_prompt)
    progress = b'"prompt_progress":{"total":719,"cache":520,"processed":719,"time_ms":10}'
    parser.feed(b'data: {"choices":[{"index":0,"delta":{"content":null}}],' + progress + b"}\n\n")
    assert (sieve.prompt_tokens, sieve.cached_tokens) == (719, 520)


@pytest.mark.parametrize(
    ("note", "told"),
    [
        (
            'Your owner said before, corrected since: "My car is on level 4."',
            'You know this from your owner, corrected since: "Your car is on level 4."',
        ),
        (
            'Your owner corrects it: "I park on level 4."',
            'Your owner corrects it. Right is now: "You park on level 4."',
        ),
        ('Your owner said before: "My cat is Miso."; "It rains."', None),
        ('Your owner said before: "Mi hermano vive en Zaragoza."', None),
        ('Your owner said before: "The choir rehearses on Thursday."', None),
        ('Tom said before: "My car is red."', None),
    ],
)
def test_a_small_model_is_told_the_words_of_its_owner_as_it_would_say_them(
    note: str, told: str | None
):
    lines = last(wire("user", f"[asterism] {note}"), wire("user", "Well?"))
    assert f"[asterism] {told or note}" in lines


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Hi, I am Lena and my cat is called Miso.", "you are Lena and your cat is called Miso"),
        ("I'm allergic to peanuts!", "you're allergic to peanuts"),
        ("Hello! I am Lena. I live in Kyoto.", "you are Lena and that you live in Kyoto"),
        ("hey Aster, my name is Tom", "your name is Tom"),
    ],
)
def test_who_tells_about_themselves_is_not_taken_for_the_agent(said: str, told: str):
    last = shown(wire("user", said))[-1]["content"]
    assert last.endswith(f'such as: "Thanks for telling me that {told}!"')


@pytest.mark.parametrize(
    ("said", "thanks"),
    [
        ("Hallo, ich bin Lena und wohne in Köln.", "Danke, dass du mir das erzählst!"),
        ("Mi perro se llama Toby y tiene tres años.", "¡Gracias por contármelo!"),
        ("Bonjour, je m'appelle Luc et j'ai deux chats.", "Merci de me l'avoir dit !"),
    ],
)
def test_who_tells_about_themselves_in_another_language_is_thanked_in_it(said: str, thanks: str):
    assert f'such as: "{thanks}"' in shown(wire("user", said))[-1]["content"]


@pytest.mark.parametrize(
    "said",
    [
        "Ich habe eine Frage zu meiner Steuer.",
        "Ich bin müde, hilf mir bitte beim Packen.",
        "Wo wohne ich?",
        "J'ai besoin d'une recette de crêpes.",
    ],
)
def test_a_request_in_another_language_gets_no_thanks(said: str):
    assert "such as:" not in shown(wire("user", said))[-1]["content"]


@pytest.mark.parametrize(
    "said",
    [
        "I need help with a cake recipe.",
        "My code fails, can you look at it?",
        "I have a problem with my printer.",
        "My kid asks why the sky is blue, short answer pls!",
        "I think it was Tuesday, not Monday.",
        "Ich bin Lena.",
        "I am writing a letter:\nDear Sam, ...",
        "The sky is grey and I am tired of it.",
    ],
)
def test_a_request_or_a_text_of_another_kind_gets_no_thanks(said: str):
    assert "Thanks for telling" not in shown(wire("user", said))[-1]["content"]


@pytest.mark.parametrize("asked", ["What do you know about me?", "who am I?"])
def test_what_is_known_of_the_owner_is_told_from_block_and_conversation(asked: str):
    block = (
        '<block label="human" permission="read_write">Facts about your owner.\n'
        "My cat is called Miso.\nI am allergic to nuts.</block>"
    )
    said = [
        wire("system", f"You are Aria.\n\n{block}"),
        wire("user", "Remember that I live in Kyoto."),
        wire("assistant", "I will."),
        wire("user", asked),
    ]
    prompt = render(ModelRequest("small", said, None, "turn_1/0/reply", 20.0))
    assert orjson.loads(prompt.messages[-1])["content"].endswith(
        'Answer: "Your cat is called Miso. You are allergic to nuts. You live in Kyoto."'
    )


def test_where_nothing_is_known_of_the_owner_nothing_is_put_into_its_mouth():
    assert "Answer:" not in shown(wire("user", "What do you know about me?"))[-1]["content"]
