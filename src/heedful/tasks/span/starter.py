"""`heed new span`."""

from __future__ import annotations

import json

from heedful.tasks.base import Starter

RECIPE = """\
# Question answering: the answer is a part of a given text. Replace examples.jsonl by your own file; about 10,000 questions and
# three minutes of two CPU cores are a start for short texts of one kind, not for open questions.

[data]
form = "spans"
train = { file = "examples.jsonl" }   # .jsonl, or .csv with the same names of columns, plain or .gz; relative to this folder
split = [0.6, 0.2, 0.2]               # train, valid, test; or remove it and give [data.valid] and [data.test]
max_length = 128                      # tokens of a question and its text; a longer text is divided into windows
stride = 64                           # tokens between the beginnings of two windows
batch = 32

[task]
name = "span"
max_answer = 30                       # tokens

[tokenizer]
kind = "words"
vocab = 20000
lowercase = true
min_frequency = 1                     # 2 or more for larger data

[model]
family = "encoder"                    # to start from a run of task masked: training.init, with the [model] of that run
dim = 128
layers = ["lstm", "self-attention"]
heads = 4
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 3000
save_every = 200
validate_every = 200
metric = "f1"

[training.schedule]
name = "linear"
learning_rate = 2e-3
warmup = 100
"""

STORIES = {  # context -> questions and answers
    "The bakery opens at six. Its owner is Rosa.": {"When does the bakery open?": "at six", "Who owns the bakery?": "Rosa"},
    "Liam lost his blue scarf on the bus.": {"Who lost a scarf?": "Liam", "Where was it lost?": "on the bus"},
    "The river froze in January, and the boats stayed in the harbor.": {
        "When did the river freeze?": "in January",
        "Where did the boats stay?": "in the harbor",
    },
    "Maria bought three lemons and a melon for the party.": {
        "What did Maria buy?": "three lemons and a melon",
        "What was it for?": "the party",
    },
    "The old tower is forty meters high.": {"How high is the tower?": "forty meters"},
    "Ken repairs bicycles behind the school.": {
        "What does Ken repair?": "bicycles",
        "Where does he work?": "behind the school",
    },
    "The concert was moved to Friday because the singer was ill.": {
        "When is the concert?": "Friday",
        "Why was it moved?": "because the singer was ill",
    },
    "Two foxes live under the wooden bridge.": {"What lives under the bridge?": "Two foxes"},
    "The letter from Oslo arrived after nine days.": {
        "Where was the letter from?": "Oslo",
        "When did it arrive?": "after nine days",
    },
    "Our train leaves from platform seven at noon.": {
        "Where does the train leave?": "from platform seven",
        "When does it leave?": "at noon",
    },
    "Grandmother keeps the honey in the cellar.": {"Where is the honey?": "in the cellar"},
    "The museum shows paintings by Ada Lind until March.": {
        "Who painted them?": "Ada Lind",
        "How long are they shown?": "until March",
    },
    "A storm broke the window of the kitchen.": {"What broke the window?": "A storm"},
    "The tickets cost nine dollars at the door.": {"How much is a ticket?": "nine dollars"},
    "Nora plants tulips every autumn.": {"Who plants tulips?": "Nora", "When does she plant them?": "every autumn"},
    "The cat sleeps on the warm oven.": {"Where does the cat sleep?": "on the warm oven"},
    "Our teacher comes from a village near Porto.": {"Where does the teacher come from?": "a village near Porto"},
    "The soup needs ten more minutes.": {"How long does the soup need?": "ten more minutes"},
    "Sam painted the fence green.": {"Who painted the fence?": "Sam", "Which color is the fence?": "green"},
    "The library is closed on Mondays.": {"When is the library closed?": "on Mondays"},
}
ROWS = [
    {"question": question, "context": context, "answer": answer, "answer_start": context.index(answer)}
    for context, questions in STORIES.items()
    for question, answer in questions.items()
]
EXAMPLES = "".join(f"{json.dumps(row)}\n" for row in ROWS)

STARTER = Starter(RECIPE, {"examples.jsonl": EXAMPLES}, "When does the shop close?\tThe shop closes at eight in the evening.")
