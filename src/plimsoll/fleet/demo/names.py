"""The words of the demo fleet: sites, clusters, teams, owners, topics of work. All of them are made up."""

from __future__ import annotations

from typing import NamedTuple


class Site(NamedTuple):
    """A colo with the region, the area and the provider it belongs to."""

    area: str
    region: str
    colo: str
    provider: str


MAIN_PROVIDER = "cloud-one"
SECOND_PROVIDER = "cloud-two"

_REGIONS = (
    # area, region, colos at the main provider, colos at the second one
    ("us", "us-prairie", ("prairie-1", "prairie-2", "prairie-3"), ()),
    ("us", "us-canyon", ("canyon-1", "canyon-2", "canyon-3"), ()),
    ("us", "us-lakes", ("lakes-1", "lakes-2"), ("lakes-9",)),
    ("us", "us-gulf", ("gulf-1", "gulf-2"), ()),
    ("eu", "eu-fjord", ("fjord-1", "fjord-2"), ()),
    ("eu", "eu-birch", ("birch-1", "birch-2", "birch-3"), ()),
    ("eu", "eu-alpine", ("alpine-1",), ("alpine-9",)),
    ("uk", "uk-moor", ("moor-1", "moor-2"), ()),
    ("uk", "uk-fen", ("fen-1",), ()),
    ("other", "other-reef", ("reef-1", "reef-2"), ()),
    ("other", "other-monsoon", ("monsoon-1",), ()),
)

SITES: tuple[Site, ...] = tuple(
    Site(area, region, colo, provider)
    for area, region, main, second in _REGIONS
    for colos, provider in ((main, MAIN_PROVIDER), (second, SECOND_PROVIDER))
    for colo in colos
)

TIGER = "tiger"
SWEDEN_A = "sweden-a"
PLANNED = "narwhal"
PROVISIONING = "osprey"

# Names for the other clusters; more than needed, so that the seed picks among them.
_ANIMALS = """
adder alpaca badger barnacle bat beaver bison bobcat buzzard camel caribou cheetah cicada condor coyote crane cricket
crow curlew dingo dolphin dormouse eagle egret eland elk ermine falcon ferret gannet gazelle gecko gibbon giraffe
grouse hare hawk hedgehog heron hornet ibex ibis iguana impala jackal kestrel kiwi koala lemur leopard lion lizard
llama lobster lynx macaw magpie mamba marmot marten meerkat mink mole moose moth newt ocelot octopus okapi oriole
otter owl panda pelican penguin petrel pike plover polecat puffin quail rabbit raven salmon seal shrew skink sparrow
squid stoat stork swan tapir tern toad toucan trout turtle urchin viper vole vulture weasel whale wolf wombat wren yak
zebra
"""
ANIMALS: tuple[str, ...] = tuple(_ANIMALS.split())

POSTTRAINING = "posttraining"

RESEARCH_TEAMS: tuple[str, ...] = (
    POSTTRAINING,
    "pretraining-a",
    "pretraining-b",
    "pretraining-data",
    "midtraining",
    "reasoning",
    "reward-models",
    "evals",
    "safety-evals",
    "red-team",
    "interpretability",
    "oversight",
    "vision",
    "speech",
    "video",
    "multimodal",
    "robotics",
    "code-models",
    "tool-use",
    "long-context",
    "retrieval",
    "distillation",
    "scaling-laws",
    "architecture",
    "optimizers",
    "kernels",
    "numerics",
    "sandbox",
)
APPLIED_TEAMS: tuple[str, ...] = (
    "chat-serving",
    "chat-quality",
    "api-serving",
    "api-latency",
    "api-finetuning",
    "batch-inference",
    "embeddings",
    "moderation",
    "search-serving",
    "voice-serving",
    "image-serving",
    "release-canary",
)

GANG_TOPICS: tuple[str, ...] = ("pretrain", "sft", "rl", "distill", "ablation", "longctx", "reward", "sweep")
ELASTIC_TOPICS: tuple[str, ...] = ("graders", "evals", "judges", "datagen", "embed", "rollouts")
SERVING_TOPICS: tuple[str, ...] = ("serve", "canary", "embed", "moderate", "batch")

# An owner is a handle made of two words, so that nobody's name can turn up.
_OWNER_FIRST = "amber brisk calm deep early faint glad keen late mellow quiet steady"
_OWNER_SECOND = "anchor beacon compass dock ferry harbour keel mast rudder sail"
OWNERS: tuple[str, ...] = tuple(
    f"{first}-{second}" for first in _OWNER_FIRST.split() for second in _OWNER_SECOND.split()
)
