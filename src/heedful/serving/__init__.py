"""An HTTP server for trained models (`pip install heedful[serve]`).

worker.py            one thread per model: a bounded queue, batches, results to listeners; no network in it
model_process.py     the same in a process of its own, for models on a GPU
served.py            the models of a server, found by id or by language pair
app.py               the routes, and what is common to all of them
libretranslate.py    the API of LibreTranslate
openai.py            the API of OpenAI
predict_api.py       predictions of every task, and the results of `heedful.inspection`
server.py            the process: socket, signals, draining
"""
