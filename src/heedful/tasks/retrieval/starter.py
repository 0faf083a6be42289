"""`heed new retrieval`."""

from __future__ import annotations

from heedful.tasks.base import Starter

RECIPE = """\
# Retrieval of stored answers. Replace dialogues.tsv by your own file; about 5,000 dialogues or pairs and three minutes of two
# CPU cores are a start.

[data]
form = "dialogues"                    # or "similar": a table with a question, an answer and hard negatives in each row
train = { file = "dialogues.tsv" }    # turns separated by tabs, a dialogue per line: question, answer, question, answer, …
split = [0.6, 0.2, 0.2]               # train, valid, test; or remove it and give [data.valid] and [data.test]
turns = 3                             # turns that are read before an answer; 1: the question alone
replies = "second"                    # answers are the turns of the second speaker; "all": of both
max_length = 64                       # tokens; the oldest of a longer history are cut
batch = 128                           # the other answers of a batch are negatives: larger is better

[task]
name = "retrieval"
temperature = 0.05
shared = true                         # one encoder for questions and answers; false: two

[tokenizer]
kind = "bpe"
vocab = 6000
lowercase = true

[model]
family = "encoder"                    # or "bert"; to start from a run of task masked: training.init, with its [model]
dim = 128
layers = ["convolution"]
dropout = 0.1

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 5000
save_every = 250
validate_every = 250
metric = "mrr"

[training.schedule]
name = "linear"
learning_rate = 2e-3
warmup = 100
"""

DIALOGUES = """\
When do you open?\tWe open at nine.\tAnd on Sundays?\tOn Sundays we are closed.
Can I pay by card?\tYes, we accept all cards.\tIs there a fee?\tNo, paying by card is free.
Where is my parcel?\tPlease give me your order number.\tIt is 4711.\tIt will arrive tomorrow.
Can I return a jacket?\tYes, within thirty days.\tDo I need the receipt?\tYes, please bring the receipt.
Do you ship abroad?\tWe ship to all of Europe.\tHow long does it take?\tAbout one week.
I forgot my password.\tI have sent you a link to set a new one.\tIt did not arrive.\tPlease look into your spam folder.
Is breakfast included?\tYes, from seven to ten.\tDo you have vegan dishes?\tYes, just ask the staff.
May I bring my dog?\tDogs are welcome.\tDoes it cost extra?\tFive euros for each night.
How do I cancel my order?\tClick on cancel in your account.\tWill I get my money back?\tYes, within three days.
Do you have parking?\tThere is a garage behind the house.\tIs it free?\tThe first hour is free.
Which size fits me?\tPlease see our size chart.\tI am between two sizes.\tThen take the larger one.
How long is the guarantee?\tTwo years.\tWhat does it cover?\tAll repairs, but no scratches.
The lamp does not work.\tIs it plugged in?\tYes, it is.\tThen we will send you a new one.
Can I speak to a person?\tA colleague will call you.\tWhen will that be?\tIn about ten minutes.
Is there a discount for students?\tStudents pay half.\tWhat do I have to show?\tYour student card, please.
When does the last bus leave?\tAt half past eleven.\tWhere does it stop?\tIn front of the museum.
"""

STARTER = Starter(RECIPE, {"dialogues.tsv": DIALOGUES}, "Are you open on Sunday?")
