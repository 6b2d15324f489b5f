"""What a command does before it asks the shared engine: wait, show, switch, or say what differs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from app.client import RemoteEngine
from app.load_attempt import Opened
from app.online import until_ready
from app.settings import DaemonSettings, ModelSettings, Settings
from app.wire import Startup, Wanted
from engine.protocol import EngineError, ModelError
from tests.app.remote_engine import PacedEngine, Served

DEFAULT = ModelSettings().model


class Shop(Served):
    """A daemon whose models are named, and may be broken."""

    def __init__(self, folder: Path) -> None:
        self.opened: list[str] = []
        super().__init__(folder, self.open, Startup(daemon=DaemonSettings(idle_minutes=0)))

    def open(self, wanted: Wanted, report: object) -> Opened:
        name = wanted.model.model
        self.opened.append(name)
        report("reading", 1, 2)  # type: ignore[operator]
        if name == "broken/model":
            raise ModelError("broken", "the file is damaged", "Fetch it again.")
        return Opened(engine=PacedEngine(name))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    served = Shop(tmp_path)
    yield served
    served.close()


def settings_of(model: str, origin: str = "the command line") -> Settings:
    return Settings(model=ModelSettings(model=model), origins={"model.model": origin})


async def get_ready(shop: Shop, settings: Settings) -> tuple[RemoteEngine, list[str]]:
    engine, stages = shop.client(settings), list[str]()
    async with asyncio.timeout(10):
        await until_ready(engine, settings, lambda stage, done, total: stages.append(stage))
    return engine, stages


async def present(shop: Served, clients: int) -> None:
    """Wait until the daemon has noticed who opened and closed a connection."""
    for _ in range(1000):
        if (await shop.client().status()).clients == clients:
            return
        await asyncio.sleep(0.01)
    pytest.fail("somebody stayed, or never came")


async def everyone_left(shop: Shop) -> None:
    """Wait until the daemon has noticed that the last client closed its connection."""
    await present(shop, 0)


def test_it_waits_for_the_load_and_shows_its_stages(shop: Shop) -> None:
    asyncio.run(get_ready(shop, Settings()))
    assert shop.opened == [DEFAULT]
    _, stages = asyncio.run(get_ready(shop, Settings()))
    assert stages == []
    assert shop.opened == [DEFAULT]


def test_alone_a_command_gets_the_model_it_names(shop: Shop) -> None:
    async def main() -> None:
        engine, stages = await get_ready(shop, settings_of("other/model"))
        assert (await engine.status()).model == "other/model"
        assert engine.difference() == ""
        assert "reading" in stages

    asyncio.run(main())
    assert shop.opened[-1] == "other/model"


@pytest.mark.parametrize("origin", ["the command line", "/home/me/config.toml"])
def test_what_others_use_is_not_taken_from_them(shop: Shop, origin: str) -> None:
    async def main() -> None:
        async with shop.client().watch() as statuses:
            async for status in statuses:
                if status.state == "ready":
                    break
            engine, _ = await get_ready(shop, settings_of("other/model", origin))
            assert (await engine.status()).model == DEFAULT
            assert engine.difference() == f"model {DEFAULT} (asked for: other/model)"

    asyncio.run(main())
    assert shop.opened == [DEFAULT]


def test_a_file_s_setting_alone_changes_no_running_engine(shop: Shop) -> None:
    async def main() -> None:
        await get_ready(shop, Settings())
        engine, _ = await get_ready(shop, settings_of("other/model", "/home/me/config.toml"))
        assert "other/model" in engine.difference()

    asyncio.run(main())
    assert shop.opened == [DEFAULT]


def test_a_model_that_fails_is_the_command_s_error_and_the_next_may_have_another(
    shop: Shop,
) -> None:
    async def main() -> None:
        with pytest.raises(ModelError, match="damaged"):
            await get_ready(shop, settings_of("broken/model"))
        await everyone_left(shop)
        engine, _ = await get_ready(shop, settings_of("other/model"))
        assert (await engine.status()).model == "other/model"

    asyncio.run(main())


def test_a_change_that_fails_is_the_command_s_error_and_the_model_before_is_back(
    shop: Shop,
) -> None:
    async def main() -> None:
        engine, _ = await get_ready(shop, Settings())
        await everyone_left(shop)
        with pytest.raises(ModelError, match="damaged"):
            await get_ready(shop, settings_of("broken/model"))
        assert (await engine.status()).model == DEFAULT

    asyncio.run(main())
    assert shop.opened == [DEFAULT, "broken/model", DEFAULT]


def test_a_window_whose_change_failed_wants_the_model_before_again(shop: Shop) -> None:
    async def main() -> None:
        engine, states = shop.client(settings_of(DEFAULT)), list[str]()
        async with asyncio.timeout(10), engine.watch() as statuses:
            async for status in statuses:
                states.append(status.state)
                if states == ["ready"] or (status.state == "ready" and len(states) == 2):
                    await engine.use_model("broken/model")
                if status.failure is not None:
                    break
        assert (status.state, status.model, status.failure.code) == ("ready", DEFAULT, "broken")
        assert f"model was not loaded: the file is damaged. Fetch it again. {DEFAULT} is back." in (
            status.notice
        )
        await engine.status()
        assert engine.difference() == ""

    asyncio.run(main())


def test_a_failure_of_before_is_tried_again(shop: Shop) -> None:
    async def main() -> None:
        for _ in range(2):
            with pytest.raises(ModelError, match="damaged"):
                await get_ready(shop, settings_of("broken/model"))
            await everyone_left(shop)

    asyncio.run(main())
    assert shop.opened.count("broken/model") == 2


def test_a_name_that_nobody_knows_changes_nothing(shop: Shop) -> None:
    async def main() -> None:
        await get_ready(shop, Settings())
        await everyone_left(shop)
        with pytest.raises(EngineError, match="no model called"):
            await get_ready(shop, settings_of("nonsense"))
        assert (await shop.client().status()).model == DEFAULT

    asyncio.run(main())


@pytest.mark.parametrize("others", [0, 1])
def test_an_interrupted_command_ends_a_load_that_nobody_else_waits_for(
    tmp_path: Path, others: int
) -> None:
    going_on = threading.Event()

    def slowly(wanted: Wanted, report: object) -> Opened:
        while not going_on.wait(0.01):
            report("reading", 1, 2)  # type: ignore[operator]  # raises once it is stopped
        return Opened(engine=PacedEngine(wanted.model.model))

    served = Served(tmp_path, slowly)

    async def main() -> str:
        async with AsyncExitStack() as stack:
            for _ in range(others):
                await anext(aiter(await stack.enter_async_context(served.client().watch())))
            command = asyncio.create_task(until_ready(served.client(), Settings(), lambda *_: None))
            await present(served, others + 1)
            command.cancel()
            with suppress(asyncio.CancelledError):
                await command
            return (await served.client().status()).state

    try:
        assert asyncio.run(main()) == ("loading" if others else "asleep")
    finally:
        going_on.set()
        served.close()
