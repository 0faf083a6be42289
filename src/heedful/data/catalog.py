"""Catalog of public corpora: origin, license terms, and the SHA-256 of the unpacked text of every file.

`downloads` lists the URL and line count of each file of corpora that can be downloaded unchanged. The others were filtered
or split after download (`form` describes how) and can only be copied from a folder. `fetch.py` does both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Download(NamedTuple):
    url: str
    lines: int  # number of newlines, to detect an error page or a truncated file
    verbatim: bool = True  # the text has the checksum of the catalog; otherwise only the lines are counted


@dataclass(frozen=True)
class Corpus:
    task: str
    languages: tuple[str, ...]
    splits: dict[str, int]  # examples in each
    origin: str
    terms: str  # as far as known; read them at the origin before redistributing the data
    form: str
    checksums: dict[str, str]  # file -> SHA-256 of its text, unpacked because gzip output varies
    downloads: dict[str, Download] = field(default_factory=dict)


GITHUB = "https://raw.githubusercontent.com"
MULTI30K = f"{GITHUB}/multi30k/dataset/master/data/task1/raw"
WIKITEXT = f"{GITHUB}/pytorch/examples/main/word_language_model/data/wikitext-2"
EWT = f"{GITHUB}/UniversalDependencies/UD_English-EWT/r2.15"

CATALOG: dict[str, Corpus] = {
    "multi30k": Corpus(
        task="translation",
        languages=("en", "de", "fr"),
        splits={"train": 29_000, "valid": 1_014, "test2016": 1_000},
        origin="https://github.com/multi30k/dataset",
        terms="none stated for the text; derived from Flickr30k, for non-commercial research and education",
        form="official splits of task 1, text unchanged",
        checksums={
            "test2016.de.gz": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
            "test2016.en.gz": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
            "test2016.fr.gz": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
            "train.de.gz": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
            "train.en.gz": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
            "train.fr.gz": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
            "valid.de.gz": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
            "valid.en.gz": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
            "valid.fr.gz": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
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
        form="v2021-08-07, eng-por dev part without duplicates and sentences of its test set, split by sentence",
        checksums={
            "test.en.gz": "0c71334d963d96216127f4e34ad05b4e323799697e1408204d6da77dc6badced",
            "test.pt.gz": "c411e4c0661f1d140c3cb90a52c689cfc1992a0a4d81009494f38fea0a9473da",
            "train.en.gz": "13d7097e923138f93264db8723318498456ca064f24b0c7904dd92dad07eb4ab",
            "train.pt.gz": "22e0ff428848521558a2c429d69c03f5324e1eebc66c04fa3ebbfe6733212588",
            "valid.en.gz": "b773e67ae25a1d0c5b7da5829477173c042df2704932c8ecb6356057a5c79aed",
            "valid.pt.gz": "b302fbd802128acec57f74bcfc3e54672d0b0a295c9a1b3d5de7bb1e50363106",
        },
    ),
    "tatoeba-en-it": Corpus(
        task="translation",
        languages=("en", "it"),
        splits={"train": 27_135, "valid": 1_000, "test": 1_000},
        origin="https://github.com/Helsinki-NLP/Tatoeba-Challenge",
        terms="CC-BY 2.0 FR, by the Tatoeba contributors",
        form="part of eng-ita test and dev, without duplicates, split by sentence",
        checksums={
            "test.en.gz": "e42794128a5475687007afea5dd628a99fe163da0f67c52a6dc9ad80a3d6a822",
            "test.it.gz": "8f3d2ded05c893b6917230c9413189d61a715833d94d81a84a92ce384a2772e2",
            "train.en.gz": "1ad9ba9c2b422f8349f56e29e842dc533182a15ee037c8622e73daa518c375cc",
            "train.it.gz": "a8b066f6fa445482158b346e89386d3b37822ed96a130512efc670901c3c3f27",
            "valid.en.gz": "2b14b130a54efdc5169c459152e3d8ad244ff912f791522c5b00c33ee06b3ac1",
            "valid.it.gz": "2762262e16d562196326edcce3cf04ae41a7f7b646f82d7730f66b188e41b3b2",
        },
    ),
    "debian-en-it": Corpus(
        task="translation",
        languages=("en", "it"),
        splits={"train": 109_443, "valid": 2_542, "test": 1_076},
        origin="https://www.debian.org/international/l10n/ddtp",
        terms="Debian, mixed free licenses",
        form="paragraphs of package descriptions of Debian 12, split by package",
        checksums={
            "test.en.gz": "43a3281f227bbf2c4d4429fa7c99bda5178449e83a1b9606d46f4576a53c2f90",
            "test.it.gz": "b244a1f3539c2f1816dad03c5d45536cd0161afc3442245bea766eb8edac0b04",
            "train.en.gz": "06305324caf72af25e925eff688b8277e65fa48d21a8d39eedceb3db22bf9bcf",
            "train.it.gz": "1064d900da59e68b1375b028f74411de71bf4c5b3aefa013a5969b5ae5ca9bc7",
            "valid.en.gz": "afb84b363a48d4a573e997cdf7795aa854f42f19d1e633842f16e4ff7954b955",
            "valid.it.gz": "d4175a3ec7b81a149e5211457e0e1f19df65cb5c7193e2c67a167a0548520e84",
        },
    ),
    "anki-en-es": Corpus(
        task="translation",
        languages=("en", "es"),
        splits={"train": 111_057, "valid": 2_000, "test": 2_000},
        origin="https://www.manythings.org/anki/",
        terms="CC-BY 2.0 FR, by the Tatoeba contributors",
        form="export of 2020-08-23 without sentences of the Tatoeba-Challenge test set, split by sentence",
        checksums={
            "test.en.gz": "94aa09a133cd25c9a4a1ff25ea9bb80961cf69c44963c8bd24353ee7ccc45f44",
            "test.es.gz": "ea3aa6f40e83c3032a199871072a9957198fd1ec604d4a8c50a3a9fcfce76dcc",
            "train.en.gz": "131022306af21c875f22948998567090df2af36f1da2ec89e9d0356408204c3a",
            "train.es.gz": "51dca0672031ad0dcc472cfad8ef623bdc8e20d2d38f5e64e649d02a8b67684b",
            "valid.en.gz": "855498816ea02abab426fb2e9222ad3ee19af3433c1fcd08c7be73bf980fa5d9",
            "valid.es.gz": "b2493fd33e1aa031160cc9956852e9c9e0479f77286cb7c1848aa9f6cf94a6d8",
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
            "test.en.gz": "9171b0c50fec7d9c210e8960ed6e4a58c4633bc039f5dffc0167380b4559abaa",
            "test.fr.gz": "906e89a4a15eea7d0fee39791988d8ab8fd35c9c16bc13e7f036186cc5932d79",
            "train.en.gz": "b2630c93edbc0bdb47f8e276dd0e7002654775e5a5113a3f7d786e2fd3efaf44",
            "train.fr.gz": "29edbd0eed441fea7c726fb473caff6cc781fbe166f0c409a9748b3f0927f7b0",
            "valid.en.gz": "33820212517a8c809aa59fc8b49e5dfc225f760e2c75bbdcc875944225178fac",
            "valid.fr.gz": "7073365872bc00a68a28626215c4b21f3f31529b53cac3267c09ddd61b474f2f",
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
            "test.align.gz": "04714698498620daa2d2b1afbb873e3e78e2477c410db358902d74f604c5da28",
            "test.en.gz": "e6d02b651ce63bbfa5628936d33fed217db6651039e433a75bb8707f387559b7",
            "test.fr.gz": "41368dcb5382a52f7026ab5b16576d7d3dc431af23c1d96714849db398ea9c23",
            "valid.align.gz": "e58cb38ef1e1cf81fc11e923cf9761a17c299e35503e7cbd2fb9d5d60bd06986",
            "valid.en.gz": "21af26d9d6037d202d5265ee14b82ae5dbcc48f518fd8f2e84c7818bd87f69c8",
            "valid.fr.gz": "55330c83afbbbc1cb7768cdbe90c37c28b1dcf73b2ea8a7f34c42d7b1695f156",
        },
    ),
    "sst2": Corpus(
        task="classification",
        languages=("en",),
        splits={"train": 60_614, "valid": 6_660, "test": 872},
        origin="https://github.com/forest-snow/alps",
        terms="not stated",
        form="label TAB text; test is the usual labeled dev set",
        checksums={
            "test.tsv.gz": "3203ca7e32f5edb81a45df4961c20954126b4a23c759059daf7b5a789e090553",
            "train.tsv.gz": "75a55ced54cab094984db51b4dcfc1a475e5c3cbad13dd15ca1f44b67b067269",
            "valid.tsv.gz": "ebcbdde5b7b81ff07dda0cf4993d14360a08b57b398b0d04c428ba9199dcbeb0",
        },
    ),
    "imdb": Corpus(
        task="classification",
        languages=("en",),
        splits={"train": 20_000, "valid": 2_000, "test": 3_000},
        origin="https://ai.stanford.edu/~amaas/data/sentiment/",
        terms="not stated; cite Maas et al. 2011",
        form="label TAB text; a subset of the 25,000 training reviews",
        checksums={
            "test.tsv.gz": "73e020ef28339bd3265eca91f890d3b79790ae00511dd981c6036b19fd1fbcde",
            "train.tsv.gz": "7b2de95a6270d69a896bc0f523bfc52af32aca6e17368cb85f8d6311301a03df",
            "valid.tsv.gz": "98722616b0aeeb123e6437a44980bb1bf5b1f4492284de4915046616938f24b8",
        },
    ),
    "dialogue-daily": Corpus(
        task="dialogue",
        languages=("en",),
        splits={"train": 984, "valid": 500},
        origin="https://github.com/liuzeming01/XDailyDialog",
        terms="CC-BY-NC-SA 4.0",
        form="one dialogue per line, turns separated by TAB",
        checksums={
            "train.txt.gz": "c3ea87647e5ff9ea08ab0e2288b9d5ecd3f5b7d95098523160151432c27b4287",
            "valid.txt.gz": "b4151f830e0e29ccf1d2e8998ebbbd847e1487d1a5571db7d57d9a8def8a2533",
        },
    ),
    "dialogue-sgd": Corpus(
        task="dialogue",
        languages=("en",),
        splits={"train": 12_174, "valid": 2_098, "test": 2_919},
        origin="https://github.com/google-research-datasets/dstc8-schema-guided-dialogue",
        terms="CC-BY-SA 4.0",
        form="utterances only, one dialogue per line, turns separated by TAB",
        checksums={
            "test.txt.gz": "906a50bf3fd2c3c9b98b1adf2a085b9a72672708e61e6f05e6ed38f4f2a10544",
            "train.txt.gz": "819dd42f7c14ff7d7c5145c98a2ec791d0fd4d67fd6c6f6d145e93e7be24f373",
            "valid.txt.gz": "55280a9c27be6262cd9a0fde14dbce47baecb90c88a0384f751a6fdb7229199c",
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
            "input.txt.gz": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
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
        form="tokenized, with <unk>; the articles of train may be in another order than in the official file",
        checksums={
            "test.txt.gz": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            "train.txt.gz": "728c77e87e176af4730f9a80fc6008bcaff421a7202c1c048877c0eec3685f89",
            "valid.txt.gz": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        },
        downloads={
            "train.txt.gz": Download(f"{WIKITEXT}/train.txt", 36_718, verbatim=False),
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
            "test.conllu.gz": "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
            "train.conllu.gz": "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b",
            "valid.conllu.gz": "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
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
        form="parallel UD; sentence n of one file is the translation of sentence n of the other",
        checksums={
            "de.conllu.gz": "a530bdb50349bbd7c13706b6a759a9d73e8f514fff41fbf27149e914b0c3e723",
            "en.conllu.gz": "c80584f2bc2b31d5bada78a1136f9feec7ac49e5e18898db02dea434b5b8f0aa",
        },
    ),
    "etth1": Corpus(
        task="forecasting",
        languages=(),
        splits={"ETTh1": 17_420},
        origin="https://github.com/zhouhaoyi/ETDataset",
        terms="CC-BY-ND 4.0: do not redistribute modified copies",
        form="hourly rows, header, date and 7 columns",
        checksums={
            "ETTh1.csv.gz": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
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
            "exchange_rate.txt.gz": "0127465b51e3cd3c360f8eb2be30cfd294689a2a55903eb8245aafc396626c7f",
        },
        downloads={
            "exchange_rate.txt.gz": Download(
                f"{GITHUB}/laiguokun/multivariate-time-series-data/master/exchange_rate/exchange_rate.txt.gz", 7_588
            ),
        },
    ),
}
