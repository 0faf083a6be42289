"""Public corpora by name: where they come from, on what terms, and the SHA-256 of every file in the form used here.

`downloads` gives, for corpora whose files can be fetched as they stand, the address of each file and how many lines it
has; the others were cut or split after download (`form` says how) and are taken from a folder that has them.
`fetch.py` does both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Download(NamedTuple):
    url: str
    lines: int  # ends of line in the text, so that an error page or half a file is noticed


@dataclass(frozen=True)
class Corpus:
    task: str
    languages: tuple[str, ...]
    splits: dict[str, int]  # examples in each
    origin: str
    terms: str  # as known; read them at the origin before passing anything on
    form: str
    checksums: dict[str, str]  # file: SHA-256
    downloads: dict[str, Download] = field(default_factory=dict)


GITHUB = "https://raw.githubusercontent.com"
MULTI30K = f"{GITHUB}/multi30k/dataset/master/data/task1/raw"
WIKITEXT = f"{GITHUB}/pytorch/examples/main/word_language_model/data/wikitext-2"
EWT = f"{GITHUB}/UniversalDependencies/UD_English-EWT/r2.15"

CATALOGUE: dict[str, Corpus] = {
    "multi30k": Corpus(
        task="translation",
        languages=("en", "de", "fr"),
        splits={"train": 29_000, "valid": 1_014, "test2016": 1_000},
        origin="https://github.com/multi30k/dataset",
        terms="none stated for the text; derived from Flickr30k, for non-commercial research and education",
        form="official splits of task 1, text unchanged",
        checksums={
            "test2016.de.gz": "d9747e9ef1c1bf36bf4a0e43c0d0fba58cc55d6b2b8e388cc863cba02b043fea",
            "test2016.en.gz": "4f32cb8118b90cd5189d141e34791f70c245315e17065ecf9b2af6ab57e747cf",
            "test2016.fr.gz": "aaa466eae473f1807a1b4a1683e18b6bba1234aee4ebf70e04bbc11d1e87d2be",
            "train.de.gz": "d71259ddb13479e1c9cac315c123493b7e97d2c996465b76d885a80a9e8daccd",
            "train.en.gz": "e1d89f49b9f003db6bb35c24382eb56531fec4e3840cb704cf36f0c0e192b62d",
            "train.fr.gz": "41e4a42abcf242f69c88814fe0f8df106d877f0b07482c841f6063e3ed739039",
            "valid.de.gz": "c7c5fd8dde71846406de776f1c342f0c1e95e1c375e3bea7d52a77faec72e965",
            "valid.en.gz": "0a9a01b4fd231cafeebea18983300016112dc919d3b26c5c74f6d6f388936aeb",
            "valid.fr.gz": "9ccb4038b407530093f76c4aa5e955842303e96b0bdef3c626a0c8320d450f36",
        },
        downloads={
            "train.en.gz": Download(f"{MULTI30K}/train.en.gz", 29_000),
            "train.de.gz": Download(f"{MULTI30K}/train.de.gz", 29_000),
            "train.fr.gz": Download(f"{MULTI30K}/train.fr.gz", 29_000),
            "valid.en.gz": Download(f"{MULTI30K}/val.en.gz", 1_014),
            "valid.de.gz": Download(f"{MULTI30K}/val.de.gz", 1_014),
            "valid.fr.gz": Download(f"{MULTI30K}/val.fr.gz", 1_014),
            "test2016.en.gz": Download(f"{MULTI30K}/test_2016_flickr.en.gz", 1_000),
            "test2016.de.gz": Download(f"{MULTI30K}/test_2016_flickr.de.gz", 1_000),
            "test2016.fr.gz": Download(f"{MULTI30K}/test_2016_flickr.fr.gz", 1_000),
        },
    ),
    "tatoeba-pt-en": Corpus(
        task="translation",
        languages=("pt", "en"),
        splits={"train": 192_783, "valid": 2_000, "test": 2_000},
        origin="https://github.com/Helsinki-NLP/Tatoeba-Challenge",
        terms="CC-BY 2.0 FR, by the Tatoeba contributors",
        form="v2021-08-07, eng-por dev part less repeats and sentences of its test set, split by sentence",
        checksums={
            "test.en.gz": "08f591d51a80e3d66a25cb1e8b63708297c86515ac7e00bfe56b4fe9742412ac",
            "test.pt.gz": "bff22620dcdd71bc21134342116e6771e0f440906289ffc927c260b89280b32b",
            "train.en.gz": "7b5c59e8d8e27c6caf27e81ae823aa974598faf4aefe14497759fdd8ed73e41b",
            "train.pt.gz": "c678e0cf6453aaaa8df979ce088a3321ebe637338cee466a15fc2a55c81d7d5a",
            "valid.en.gz": "ff94684859d83b7d20e66178c9227a21566f4c3e9be88b837031b37720f94b2f",
            "valid.pt.gz": "7c52cd8980aea9dd28f898a1bfb2985adaba543ba8353cad0f410029b6a09d97",
        },
    ),
    "tatoeba-en-it": Corpus(
        task="translation",
        languages=("en", "it"),
        splits={"train": 27_135, "valid": 1_000, "test": 1_000},
        origin="https://github.com/Helsinki-NLP/Tatoeba-Challenge",
        terms="CC-BY 2.0 FR, by the Tatoeba contributors",
        form="part of eng-ita test and dev; repeats left out, split by sentence",
        checksums={
            "test.en.gz": "6d2c6ebb7ecead06ee456a749e7d3f5614b9ec7db12139943240dfa2ae873889",
            "test.it.gz": "9cd10bfb766ebe560367f6f7c9f728e67053ea7a130ca2f714ec1911799f10a3",
            "train.en.gz": "21b060f44df9fd0356300357b894c474d6c409a1a4e3e15e17a95678918a55bd",
            "train.it.gz": "f738f64642148809e733a5fc59a2d5c8206dcf97246ad367583b941aa0a2d06a",
            "valid.en.gz": "3ed49f9607ddbf384d3688d50838e47213952bfd5dfeed96db3a2369e50bdfc8",
            "valid.it.gz": "6a9c202874726a50b69f0cad22d38216a3abbf4a7acf1bf7c1cc6bda41d7c688",
        },
    ),
    "debian-en-it": Corpus(
        task="translation",
        languages=("en", "it"),
        splits={"train": 109_443, "valid": 2_542, "test": 1_076},
        origin="https://www.debian.org/international/l10n/ddtp",
        terms="Debian, mixed free licences",
        form="package descriptions of Debian 12 cut to paragraphs, split by package",
        checksums={
            "test.en.gz": "5d730b5bd5e8d37257a1630937bfb4f895cf3b9763125b73f7e43c4f2c0b76ee",
            "test.it.gz": "e4961e0918bee2684ae12beb0ee6c839f7458c122ad38587eb396eb4fc615f6f",
            "train.en.gz": "7a7d2b9970262b9af48eb09fd9d2d5db7cad8de6515f16a00be07ecc3d893c4e",
            "train.it.gz": "0fd5482ebc1249980675959bd4582ab578a8b2c95b1da10f40116b4e5e598973",
            "valid.en.gz": "e27bb30610f79395c11a535f29791d4d18a7e1b6f51d7ca27a23d420b0edb4d6",
            "valid.it.gz": "ba120cb1a843e2f868de2dff9ee630fbd3a3ee34975e5b6596e7c1b734751646",
        },
    ),
    "anki-en-es": Corpus(
        task="translation",
        languages=("en", "es"),
        splits={"train": 111_057, "valid": 2_000, "test": 2_000},
        origin="https://www.manythings.org/anki/",
        terms="CC-BY 2.0 FR, by the Tatoeba contributors",
        form="export of 2020-08-23 less sentences of the Tatoeba-Challenge test set, split by sentence",
        checksums={
            "test.en.gz": "e638f5f11f57e396eafcabb6b4b934fc5e268c7a744d7b41cba5bcc1e8725bca",
            "test.es.gz": "ccb384aa5c526b10bd21d6e4ec439892cb7d51afb1922bddfd3385f49f66ed44",
            "train.en.gz": "0ec40011136e382f19d8d6ed53dc6f2e0c91e9221e8ea06fe4f390f23f61e27e",
            "train.es.gz": "037992cdf52fab786bc60a5bfdfa8f77e7a857068cb250294bc7dcdf9c582f34",
            "valid.en.gz": "0524e4b4ffdcc0d395ee59638f3ffb3ac669aeff9fef9dee79496fe193e27484",
            "valid.es.gz": "2c9cedffeb148ae3f4f6e0452eca4b94f579db2b518a41a6a8cb4050423a5336",
        },
    ),
    "anki-en-fr": Corpus(
        task="translation",
        languages=("en", "fr"),
        splits={"train": 159_891, "valid": 2_000, "test": 2_000},
        origin="https://www.manythings.org/anki/",
        terms="CC-BY 2.0 FR, by the Tatoeba contributors",
        form="as anki-en-es",
        checksums={
            "test.en.gz": "ac64c71a8a4f4508df6859c5408e0a8ebbddf314845499309013f77ff12fd13e",
            "test.fr.gz": "f5df238c55a6b7cceb451231058cd13359d2382fdb9aad01b1c946b71bf6b63e",
            "train.en.gz": "0c7758a01722d2f28835db45c62678cd493132c446c460105f0ed69434edb602",
            "train.fr.gz": "0e26cb6bf3316bcf912485753587d8194b2421675d360162f383ab9e09ddd1c7",
            "valid.en.gz": "66e165e5ce45b4d373822c7f4368fbaa41c19b4a9de8e10f0e83faff5977c2f2",
            "valid.fr.gz": "70ccfc4d33a5de40f30b834159bf4ab5f21b070c48d0cb6a449af723da606f69",
        },
    ),
    "alignment-en-fr": Corpus(
        task="word alignment",
        languages=("en", "fr"),
        splits={"valid": 100, "test": 200},
        origin="https://github.com/neulab/awesome-align",
        terms="not stated for the data",
        form="Hansards gold alignments (NAACL 2003 shared task), links counted from 0",
        checksums={
            "test.align.gz": "80710e865cba7009adc1550bda28e5b9eec557b5e9695821b061b4ed35e07c01",
            "test.en.gz": "1e9ef2708bd84c83a4ee1e2e8719bc5d3cabc1513f0133bc56d84fa80625a30b",
            "test.fr.gz": "c66652137d8b77280c18b76aad0bd650ef442cebd30bb06ed6d7fc0175945d99",
            "valid.align.gz": "861b88519cc7f4f82873d4888e4e2bdcbf9073b7196d8973653488d63109f595",
            "valid.en.gz": "d216631fe0ef44ef4ab3d75ac7915f80586327def5af1415434a256cbfe54b5f",
            "valid.fr.gz": "86d43832b5e3df0ed8e00839516c51e847a6126c916ed14b69b188a9f8c33f17",
        },
    ),
    "sst2": Corpus(
        task="classification",
        languages=("en",),
        splits={"train": 60_614, "valid": 6_660, "test": 872},
        origin="https://github.com/forest-snow/alps",
        terms="not stated",
        form="label TAB text; test is the usual labelled dev set",
        checksums={
            "test.tsv.gz": "4c7e72c117e62a6461cf5c1077602aec9a00d001f772300496c8b8edf532b8ba",
            "train.tsv.gz": "6b5c341d3f0c854e2255a9d9df31aaa33e27b1c8ad46e009185200acf069e2ad",
            "valid.tsv.gz": "fbccb174a68375955e758b43b9a987e8a6431fee6f1ff5277a1f4b213ef09e0f",
        },
    ),
    "imdb": Corpus(
        task="classification",
        languages=("en",),
        splits={"train": 20_000, "valid": 2_000, "test": 3_000},
        origin="https://ai.stanford.edu/~amaas/data/sentiment/",
        terms="not stated; cite Maas et al. 2011",
        form="label TAB text; cut from the 25,000 training reviews",
        checksums={
            "test.tsv.gz": "158b23c50ff7b2e1dcfa41cc9bd1b31ef61eae9aada7a01fcfb3eb4a9a2a1e32",
            "train.tsv.gz": "ac566e273b0f1e61340bd6bb92102d1faad81346b851819236dc8b0098bcc823",
            "valid.tsv.gz": "9d509205a39886fb0b251b08be00fc53f2c1301526b67fa452f08a0d881a2157",
        },
    ),
    "dialogue-daily": Corpus(
        task="dialogue",
        languages=("en",),
        splits={"train": 984, "valid": 500},
        origin="https://github.com/liuzeming01/XDailyDialog",
        terms="CC-BY-NC-SA 4.0",
        form="one dialogue a line, turns apart by TAB",
        checksums={
            "train.txt.gz": "ad4db17ce8090619732fd71eb7acaf3e2f5561d60641b55f6e0a6d059fede80a",
            "valid.txt.gz": "88507fba6494f2fcb52f412e87b47a403be3b3b8dd6ad43805aa3709eb688df8",
        },
    ),
    "dialogue-sgd": Corpus(
        task="dialogue",
        languages=("en",),
        splits={"train": 12_174, "valid": 2_098, "test": 2_919},
        origin="https://github.com/google-research-datasets/dstc8-schema-guided-dialogue",
        terms="CC-BY-SA 4.0",
        form="utterances only, one dialogue a line, turns apart by TAB",
        checksums={
            "test.txt.gz": "febef3436a8ccf3cf1cb3c2bc5191d0751cc76c9447073c884939fb9d9e880cf",
            "train.txt.gz": "fa799cb2e91bd784c7762b601b4fd1d6d2038ab33142b0eee17e9bf33972c713",
            "valid.txt.gz": "ba8d2270634929486f22f1ccb509ec84139f4a8c7bc515f12cddff281ceb2e13",
        },
    ),
    "shakespeare": Corpus(
        task="language",
        languages=("en",),
        splits={"input": 40_000},
        origin="https://github.com/karpathy/char-rnn",
        terms="public domain text",
        form="unchanged",
        checksums={
            "input.txt.gz": "bed00f18e91cda6838950656f0a95e07e0f4dbe8649a4b959f7602a7e53fbc6e",
        },
        downloads={
            "input.txt.gz": Download(f"{GITHUB}/karpathy/char-rnn/master/data/tinyshakespeare/input.txt", 40_000),
        },
    ),
    "wikitext2": Corpus(
        task="language",
        languages=("en",),
        splits={"train": 36_718, "valid": 3_760, "test": 4_358},
        origin="https://github.com/pytorch/examples",
        terms="CC-BY-SA",
        form="tokenised, with <unk>; the articles of train may stand in another order than in the official file",
        checksums={
            "test.txt.gz": "a2b26b5d2619cc1f6cd34c8e116a451aed09af51479346aadfbf508ceb8b192e",
            "train.txt.gz": "0ab79876cf89ff5fea1f44c00e00acba49493ec16ea7b0729eddb61162c62644",
            "valid.txt.gz": "3ac34ae2b6509075d52302c50a04a8a1970739ffe1a904f2cd374fefbea3cbf2",
        },
        downloads={
            "train.txt.gz": Download(f"{WIKITEXT}/train.txt", 36_718),
            "valid.txt.gz": Download(f"{WIKITEXT}/valid.txt", 3_760),
            "test.txt.gz": Download(f"{WIKITEXT}/test.txt", 4_358),
        },
    ),
    "ud-en-ewt": Corpus(
        task="tagging",
        languages=("en",),
        splits={"train": 12_544, "valid": 2_001, "test": 2_077},
        origin="https://github.com/UniversalDependencies/UD_English-EWT",
        terms="CC-BY-SA 4.0",
        form="v2.15, official splits, unchanged",
        checksums={
            "LICENSE.txt": "b3d1b0f4c6ae151f7eb78738f46ebd5ee140f8a7f76501ba26af123140d35ae7",
            "test.conllu.gz": "29c151eee8846d3f3ef7806c126ecac9932af2317c008c6d6b076c5e14950dbe",
            "train.conllu.gz": "bd47e08c9e18ec12d319e84df2ccdb272ff6de1d0dba5761117d3caf8b358f7b",
            "valid.conllu.gz": "41086e3afc9ae572f899c9123f874d6d04a52e374a3d2ac7a6667ce48e3bf3e3",
        },
        downloads={
            "train.conllu.gz": Download(f"{EWT}/en_ewt-ud-train.conllu", 247_862),
            "valid.conllu.gz": Download(f"{EWT}/en_ewt-ud-dev.conllu", 32_581),
            "test.conllu.gz": Download(f"{EWT}/en_ewt-ud-test.conllu", 32_851),
        },
    ),
    "ud-pud": Corpus(
        task="tagging",
        languages=("en", "de"),
        splits={"en": 1_000, "de": 1_000},
        origin="https://universaldependencies.org",
        terms="CC-BY-SA",
        form="parallel UD, sentence n is the same in both files",
        checksums={
            "de.conllu.gz": "a106d715a3be3812dcda09ee70af5b5119f06762b0c5b07e92e5064d18aedb4d",
            "en.conllu.gz": "9f5d22faed24d5c7d98f77e773727455407895755f32806f207ede41343f6748",
        },
    ),
    "etth1": Corpus(
        task="forecasting",
        languages=(),
        splits={"ETTh1": 17_420},
        origin="https://github.com/zhouhaoyi/ETDataset",
        terms="CC-BY-ND 4.0: do not pass on changed copies",
        form="hourly rows, header, date and 7 columns",
        checksums={
            "ETTh1.csv.gz": "3c56c865b8f6fc9b760a07f055ff8a993d3cf2a747235dc382b98821ed35f029",
            "LICENSE": "83cbb5c31415b1d0ee1d20d35dae3fda3a045b85fae9364cc57facc9cd6e0946",
        },
        downloads={
            "ETTh1.csv.gz": Download(f"{GITHUB}/zhouhaoyi/ETDataset/main/ETT-small/ETTh1.csv", 17_421),
        },
    ),
    "exchange-rate": Corpus(
        task="forecasting",
        languages=(),
        splits={"exchange_rate": 7_588},
        origin="https://github.com/laiguokun/multivariate-time-series-data",
        terms="not stated",
        form="daily rows, 8 series, no header",
        checksums={
            "exchange_rate.txt.gz": "adbffacbfd1838f13878703f2e8dca6784127e312b5d6bc55f14ec9486e5089d",
        },
        downloads={
            "exchange_rate.txt.gz": Download(
                f"{GITHUB}/laiguokun/multivariate-time-series-data/master/exchange_rate/exchange_rate.txt.gz", 7_588
            ),
        },
    ),
}
