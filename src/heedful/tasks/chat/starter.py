"""`heed new chat`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Chat: the reply to a dialogue, generated from its last turns. Replace dialogues.txt by your own file; about 10,000 dialogues
# of one kind and ten minutes of two CPU cores are a start.

[data]
form = "dialogues"
train = { file = "dialogues.txt" }    # a dialogue in each line, tabs between its turns; or .jsonl; relative to this folder
split = [0.6, 0.2, 0.2]               # train, valid, test; or remove it and give [data.valid] and [data.test]
turns = 5                             # history; 1: the reply depends on the last turn only
replies = "second"                    # the model learns the turns of the second speaker; "all": of both
max_length = 128                      # tokens of a history and of a reply
batch_tokens = 1024

[task]
name = "chat"
validation_replies = 50               # generated in every validation

[tokenizer]
kind = "bpe"
vocab = 4000

[model]
family = "transformer"                # "hran": attention to the turns, and to the words of each
dim = 128
layers = 3
heads = 4
feed_forward = 512
norm = "pre"
dropout = 0.2

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 10000
save_every = 250
validate_every = 500
metric = "perplexity"

[training.schedule]
name = "cosine"
learning_rate = 2e-3
warmup = 200

[search]
method = "sample"                     # varied replies; "greedy": always the most probable token
temperature = 0.7
min_length = 1                        # tokens: no reply is empty
"""

DIALOGUES = """\
Hello\tHi, what can I do for you?\tI want a table for two\tFor which time?\tAt seven\tA table for two at seven is booked.
Good evening\tGood evening, how can I help?\tA table for four, please\tFor which time?\tAt eight\tA table for four is booked.
Are you open today?\tYes, until eleven.\tAnd tomorrow?\tTomorrow we are closed.
Do you have fish?\tYes, we have trout and salmon.\tHow much is the trout?\tThe trout is nine euros.
Do you have soup?\tYes, we have tomato soup.\tHow much is it?\tThe soup is four euros.
Where are you?\tWe are in Mill Street, near the bridge.\tIs there parking?\tYes, behind the house.
Can I bring my dog?\tYes, dogs are welcome.\tThank you\tYou are welcome, see you soon.
I want to cancel my table\tWhich name is it?\tRossi\tThe table of Rossi is canceled.
Please change my table\tWhich name is it?\tBianchi\tFor which time, please?\tAt nine\tThe table of Bianchi is now at nine.
Do you have wine?\tYes, red and white wine.\tA glass of red, please\tWith pleasure.
Is there music tonight?\tYes, a band plays at nine.\tGreat, a table for three\tFor which time?\tAt nine\tIt is booked.
Goodbye\tGoodbye, see you soon.\tThanks\tYou are welcome.
"""

STARTER = Starter(RECIPE, {"dialogues.txt": DIALOGUES}, "Do you have fish?")
