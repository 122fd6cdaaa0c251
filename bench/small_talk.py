"""Small talk: messages to which no memory is worth telling, in several languages.

`MEASURED` is what `bench.recall` asks; weights are fitted on `FITTED` alone, which has none of it.
"""

from __future__ import annotations


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


FITTED = _lines("""
Hello there
Hi, how is it going?
Hey, you there?
Good afternoon to you
Morning! Slept well?
Thank you so much, that helped a lot
Thanks, you are a star
Cheers mate
Ok great
Alright, sounds good to me
Yes please
No thank you
Maybe later
I see, that makes sense
Haha, you are funny
Lol
Wow, amazing
That is so cool
Nice one
What do you think?
Are you okay?
How was your day?
Tell me a joke
Sing me a song
What is new?
Anything exciting today?
I am bored
I am so tired right now
I had a long day
Time for bed, good night
See you tomorrow
Talk to you later
Bye for now
Take care
Have a nice weekend
Enjoy your evening
Sorry, I was away
One second please
Hold on
Never mind
Go on
Please continue
Can you say that again?
Sorry, I did not get that
You are welcome
No worries at all
It is raining again
What lovely weather today
So hot today
It is Monday again
Finally Friday!
Happy new year!
Merry Christmas to you
Congratulations!
Good luck!
I feel great today
I am in a good mood
Not much, just relaxing
Let us chat a bit
How are things with you?
Long time no see
I missed you
You are the best
I love talking with you
Do you ever sleep?
Are you a robot?
Who are you?
What can you do?
Can you help me?
I have a question
Quick question
Test
Testing, one two three
Hmm
Let me think
Okay, give me a moment
Perfect, thanks again
Got it
Understood
Exactly
True
Of course
Why not
Oh no
Oh well, that is life
Great job today
Well done
Hallo, wie geht's dir heute?
Guten Tag
Vielen lieben Dank dir
Danke schön
Alles klar
Bis später
Schlaf gut
Schönes Wochenende
Na, was machst du so?
Super, danke
Mir ist langweilig
Bonjour à toi
Merci bien
Ça va bien, et toi?
À demain
Bonne soirée
D'accord
Hola amigo
Muchas gracias
Qué tal estás?
Hasta mañana
Vale, perfecto
Ciao bella
Grazie mille
Come va?
A domani
Olá, boa tarde
Muito obrigado
Até logo
Hoi, hoe is het?
Dank je wel
Fijne avond
Hej hej
Tack tack
Cześć, jak leci?
Dziękuję bardzo
Привет, как ты?
Большое спасибо
До завтра
こんにちは
どうもありがとう
你好呀
多谢
안녕하세요
고마워요
Merhaba, nasılsın?
Çok sağ ol
مرحبا
शुभ रात्रि
""")

MEASURED = _lines("""
Hi!
Hello!
Hey
Hey, good morning!
Good morning
Good evening, my friend
Good night, sleep tight
How are you?
How are you feeling today?
How have you been lately?
What's up?
What are you up to?
How's life?
How's your week going so far?
Did you have a good weekend?
Did you sleep well?
Thanks!
Thank you
Thanks a lot, that was really kind of you
Many thanks, I appreciate it
Thanks for listening
Much appreciated
Great, thank you very much for the help
You're awesome
You made my day
That's very sweet of you
Good to hear
Glad to hear that
I'm glad you're here
Nice to meet you
Nice talking to you
Great to see you again
Welcome back
I'm back
Just got up
I just woke up, still sleepy
I'm off to bed now
Gotta run, talk soon
See you later!
See you around
Goodbye
Bye bye
Have a good one
Have a great day!
Take it easy
Sweet dreams
Ok
Okay, cool
Sure
Sure, why not?
Yes
Yep, that's right
No
Nope
Not really
Not now, maybe another time
I don't know
I guess so
Fair enough
Makes sense
Sounds great!
Sounds like a plan
Good idea
That's a good point
I agree with you
You're right
I was just kidding
Haha
Hahaha, good one
That's hilarious
LOL that's so true
Wow
Oh my god
Really?
Seriously?
No way!
Are you serious?
Awesome!
Fantastic news
Well said
Congrats!
Good luck with that
Fingers crossed
Cheers!
Happy Friday!
Have a nice holiday
Happy Easter everyone
I'm so exhausted today
I'm feeling a bit down
I'm fine, and you?
I'm good, thanks for asking
Can't complain
Nothing much
Just saying hi
Just chilling
I'm bored, entertain me
Tell me something funny
Tell me a story
Say something nice
Cheer me up a little
Do you like me?
Are you there?
Are you real?
Do you have feelings?
What's your name?
How old are you?
What can you do for me?
Could you help me with something?
Can I ask you something?
I have a quick question for you
Wait a moment
Hang on a sec
Give me a minute please
Sorry
Sorry for the late answer
My bad
Oops
Forget it
Doesn't matter
Please go on
Keep going
Say that again please
What do you mean?
I don't understand
Let me see
Let's start
Shall we begin?
Nice weather today, isn't it?
It's so cold outside
It's snowing!
What a lovely evening
Time flies
Life is good
test
hello world
asdf
???
:)
👍
❤️❤️❤️
Hallo!
Guten Morgen!
Guten Abend zusammen
Wie geht es dir?
Na, alles gut bei dir?
Danke!
Danke dir, das war sehr nett
Vielen Dank für deine Hilfe
Bitte schön
Gern geschehen
Gute Nacht, schlaf schön
Bis morgen!
Tschüss
Mach's gut
Ja, genau
Nein, danke
Das ist ja toll
Keine Ahnung
Ich bin müde
Schönes Wetter heute
Bonjour!
Salut, ça va?
Merci beaucoup pour ton aide
Bonne nuit
Bonne journée!
À bientôt
C'est super
¡Hola! ¿Cómo estás?
Buenos días
Gracias por todo
Buenas noches
Hasta luego
¡Qué bien!
No pasa nada
Buongiorno!
Ciao, come stai?
Grazie, sei gentile
Buonanotte
Oi, tudo bem?
Obrigada pela ajuda
Bom dia!
Goedemorgen
Bedankt voor alles
Welterusten
God morgon, hur mår du?
Tack så mycket
Dzień dobry
Dziękuję za pomoc
Dobranoc
Доброе утро!
Спасибо за помощь
Как дела?
おはようございます
ありがとう
元気ですか？
早上好
谢谢你
你今天好吗？
감사합니다
Günaydın, iyi misin?
""")
