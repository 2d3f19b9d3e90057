"""Choices for dubbing, about jobs, projects, links and webhooks."""

from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.speech import AUDIO_LINK_SECONDS, MAX_TEXT_CHARACTERS
from speechframe.spec.fields._range import Range

DUB_LINK_LIFETIME_SECONDS = 72 * 3600
"""Seconds that an ended job without a project and its download links are kept."""
DEFAULT_PAGE_PROJECTS = 20
"""Default number of projects on a page."""
PAGE_PROJECTS_RANGE = Range(1, 100, DEFAULT_PAGE_PROJECTS)
"""Range of the number of projects on a page."""
MAX_WEBHOOK_TRIES = 5
"""Largest number of deliveries of a webhook, until one is answered with a 2xx status."""
WEBHOOK_RETRY_SECONDS = 600
"""Sum of the pauses between the deliveries of a webhook, in seconds."""
WEBHOOK_ID_HEADER = "X-Webhook-Id"
"""Header with the id of a webhook. All deliveries of the webhook have the same id."""
WEBHOOK_TIMESTAMP_HEADER = "X-Signature-Timestamp"
"""Header with the Unix time of a delivery in milliseconds."""
WEBHOOK_SIGNATURE_HEADER = "X-HMAC-Signature"
"""Header with the hex HMAC-SHA256 of the raw body, a dot and the timestamp."""
ORIGINAL_GAIN_DB_RANGE = Range(-60.0, 0.0, -18.0)
"""Range of the level of the original audio under the dub, in dB."""
DEFAULT_DUB_CREDITS = 36_000
"""Default dubbing credits of a key in a billing cycle, enough to dub ten hours into one locale."""
MAX_TARGET_LOCALES = 200
"""Largest number of target locales of a job or project. Fewer locales than this can be dubbed into."""
MAX_PROJECT_NAME_CHARACTERS = 200
"""Largest length of the name of a project in characters, about a line."""
MAX_PROJECT_DESCRIPTION_CHARACTERS = 2_000
"""Largest length of the description of a project in characters, about a page."""
MAX_PROJECT_PAGE_BYTES = 1024 * 1024
"""Largest size of a page of projects. A page with long texts has fewer projects."""
MAX_CAST_SPEAKERS = 200
"""Largest number of speakers in the field `cast`, which selects a voice for each."""
MAX_CORRECTIONS_PER_CALL = 1_000
"""Largest number of corrected utterances in a call."""
MAX_DUB_SECONDS = 4 * 3600
"""Largest length in seconds of a media file that can be dubbed."""
MAX_DUB_CHARACTERS_PER_SECOND = 40
"""Largest number of characters of text for each second of the media file. Fast speech has 20 to 25."""
MIN_DUB_TEXT_SECONDS = 5
"""Least length in seconds that counts for the limit of text. A shorter media file counts as so long."""
MAX_DUB_VOICES_AT_ONCE = 8
"""Largest total length of the cues of a script, as a multiple of the length of the media file."""
MIN_UNCERTAIN_NAME_LINES = 3
"""Least number of lines of a script that begin with uncertain names, for these names to count as speakers.

An uncertain name may be an ordinary word before a colon.
"""
MIN_UNCERTAIN_NAME_SHARE = 0.25
"""Least number of lines that begin with uncertain names, as a share of the number of cues."""
MAX_CORRECTIONS_PER_LOCALE = 100
"""Largest number of corrections of a job in review, for each of its target locales."""
MAX_UNFINISHED_DUB_JOBS = 100
"""Largest number of waiting and running jobs of a key."""
MAX_KEPT_FAILED_DUB_JOBS = 1_000
"""Number of failed jobs of a key that are kept. Older failed jobs are removed."""
PROJECT_JOB_LIFETIME_SECONDS = 30 * 24 * 3600
"""Seconds that an ended job of a project is kept."""
MAX_DUB_PROJECTS = 1_000
"""Largest number of projects of a key."""
DUB_SPEED_RANGE = Range(0.85, 1.3)
"""Range of the speed of a line, relative to the normal speed of the voice."""
MAX_DUB_SPEED_STEP = 0.15
"""Largest difference of speed between consecutive lines, because a sudden change of speed sounds bad."""
DUB_FULL_SLOT_SHARE = 0.95
"""A line is slowed down if its speech fills less than this share of the time of the original line."""
MAX_DUB_EARLY_SECONDS, MAX_DUB_LATE_SECONDS = 0.045, 0.125
"""Seconds by which a line may start too early or too late and nobody notices (ITU-R BT.1359)."""
MAX_CUE_LINES, MAX_CUE_LINE_CHARACTERS = 2, 42
"""Largest number of lines in a subtitle cue, and of characters in a line."""
MAX_CUE_CHARACTERS_PER_SECOND = 20
"""Target for the highest reading speed of a cue, in characters per second."""
CUE_SECONDS_RANGE = Range(5 / 6, 7.0)
"""Target range of the duration of a cue, in seconds."""

DUBBING_POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "dubbing-key",
        "Key of the dubbing calls",
        "The key may differ from the speech key. It has its own environment variable.",
        "The document mentions a dubbing API key.",
        "sure",
    ),
    OpenPoint(
        "dubbing-locales",
        "Spelling of dubbing locales",
        "Dubbing has an underscore (fr_FR), and speech has a hyphen (fr-FR). All calls accept both. "
        "Answers of dubbing use the underscore, and all other answers use the hyphen.",
        "Services use both spellings, and people copy locales from one interface to the other.",
        "sure",
    ),
    OpenPoint(
        "target-locales-form",
        "`target_locales` in a multipart form",
        "A repeated field. One comma-separated value is also accepted.",
        "Public clients repeat the field, and people type commas.",
        "sure (repeated), ours (comma)",
    ),
    OpenPoint(
        "dubbing-defaults",
        "dubbing_type of a job without project; default priority",
        "AUTOMATED; NORMAL",
        "The answer requires both fields.",
        "likely",
    ),
    OpenPoint(
        "job-status",
        "Status values of a dubbing job",
        "QUEUED, IN_PROGRESS, then one of COMPLETED, PARTIALLY_COMPLETED and FAILED. A QA job is IN_REVIEW "
        "when its first version is ready. IN_REVIEW and unknown values are not final. PARTIALLY_COMPLETED "
        "is final.",
        "A client without the partial state would poll for ever. A new value must not end a wait too early.",
        "sure (COMPLETED, FAILED, that a partial state exists), guess (its spelling)",
    ),
    OpenPoint(
        "download-status",
        "Status of a download detail",
        "The words of the job's status, for each locale.",
        "The states are the same, so other words would only confuse.",
        "likely",
    ),
    OpenPoint(
        "failure-code",
        "`failure_code`",
        "INSUFFICIENT_CREDITS, CREDITS_EXHAUSTED, LANGUAGE_NOT_SUPPORTED, SPEECH_NOT_PRESENT, "
        "SOURCE_LANGUAGE_MISMATCH, WEBHOOK_ERROR, SERVER_ERROR",
        "Public clients contain these names.",
        "sure (names), likely (use)",
    ),
    OpenPoint(
        "link-life",
        "Life of result links",
        f"{AUDIO_LINK_SECONDS // 3600} h for audioFile, {DUB_LINK_LIFETIME_SECONDS // 3600} h for jobs "
        f"without a project, and {PROJECT_JOB_LIFETIME_SECONDS // 86400} days for jobs of a project, after "
        f"the last end of the job. Then the job is removed. The newest {MAX_KEPT_FAILED_DUB_JOBS:,} failed "
        "jobs of a key are kept.",
        "A dataset must not depend on a link, and the disk is limited.",
        "likely (audioFile), sure (dubbing)",
    ),
    OpenPoint(
        "webhook",
        "Webhook delivery",
        'POST {"eventName": "DUB_JOB", "data": job status} when a job ends. With a secret: '
        f"{WEBHOOK_TIMESTAMP_HEADER} (Unix ms) and {WEBHOOK_SIGNATURE_HEADER} = hex HMAC-SHA256(secret, "
        f'raw body + "." + timestamp). The service tries {MAX_WEBHOOK_TRIES} times over '
        f"{WEBHOOK_RETRY_SECONDS // 60} minutes, with the same {WEBHOOK_ID_HEADER}, until a delivery is "
        "answered with a 2xx status. It does not follow redirects. A receiver that never answers does not "
        "fail the job. A QA job also sends a webhook each time it goes into review. A webhook_url with a "
        "host outside of the public Internet gets 400 when the job is created, unless the operator allows "
        "such addresses. A host name that cannot be resolved at that moment is accepted, because it may "
        "resolve when the job ends.",
        "Public receivers check exactly this signature. The timestamp in the signature prevents replays.",
        "sure (shape, signature), guess (tries)",
    ),
    OpenPoint(
        "project-page",
        "Page of the project list",
        f"limit is {PAGE_PROJECTS_RANGE}, by default {PAGE_PROJECTS_RANGE.default}. next is an opaque "
        f"string. A page has at most {MAX_PROJECT_PAGE_BYTES // 1024**2} MB, unless its first project is "
        "larger.",
        "The service can send such a page at once.",
        "guess",
    ),
    OpenPoint(
        "dubbing-sizes",
        "Sizes of the fields of dubbing calls",
        f"At most {MAX_TARGET_LOCALES} target locales, {MAX_CAST_SPEAKERS} voices of a cast, "
        f"{MAX_CORRECTIONS_PER_CALL:,} corrected utterances, {MAX_PROJECT_NAME_CHARACTERS} characters in the "
        f"name of a project, and {MAX_PROJECT_DESCRIPTION_CHARACTERS:,} in its description. A larger request "
        "gets 400. Older projects stay unchanged.",
        "The service handles no other request while it checks the entries, and a page has up to 100 "
        "projects.",
    ),
    OpenPoint(
        "cursor",
        "Paging while projects are created",
        "next is a cursor and not an offset. So no project is listed twice or skipped.",
        "An offset would shift when a project is created.",
    ),
    OpenPoint(
        "update-while-running",
        "Project update while jobs run",
        "Running jobs keep their target locales.",
        "A job that is already billed must not change.",
    ),
    OpenPoint(
        "dub-review",
        "Review of a QA job",
        "GET /v1/dub/jobs/{job_id}/utterances returns the speaker, text, times and speed of each "
        "utterance. PUT changes texts and voices, and only these utterances are spoken again. The first "
        "version is billed. Corrections are free until the job is removed, up to "
        f"{MAX_CORRECTIONS_PER_LOCALE} for each target locale.",
        "The document has a QA type but no call for the review.",
    ),
    OpenPoint(
        "dub-script",
        "Further fields of a job",
        "script (SRT or WebVTT, speakers as `NAME: ` or `<v NAME>`) in script_locale, cast (speaker to voice "
        f"id) and original_gain_db ({ORIGINAL_GAIN_DB_RANGE}, default {ORIGINAL_GAIN_DB_RANGE.default:g}).",
        "The script of a film is more exact than speech recognition.",
    ),
    OpenPoint(
        "dub-script-reading",
        "Spoken parts of a script",
        "All text is spoken, except the names of speakers, sounds in brackets, songs between musical "
        "notes, and lines that automatic captions repeat. A name in capitals, a numbered speaker, a name "
        "in brackets with a colon and a name of the cast are speakers. Other names are speakers only if "
        f"together they begin at least {MIN_UNCERTAIN_NAME_LINES} lines and {MIN_UNCERTAIN_NAME_SHARE:.0%} "
        "as many lines as there are cues. A cue without readable times is skipped. Warnings contain the "
        "speakers and the lines.",
        "No standard of subtitles covers speakers and sounds, and players also show files with invalid cues.",
    ),
    OpenPoint(
        "audio-track",
        "Audio track of a media file with several tracks",
        "The track in source_locale, or else the default track, or else the first. Of equal tracks, a "
        "commentary comes last. Times and length count from the first sound or picture of the media "
        "file.",
        "Players choose a track and count time in this way.",
    ),
    OpenPoint(
        "dub-subtitles",
        "Subtitles as WebVTT",
        "download_vtt_url beside download_srt_url.",
        "Browsers show no other format of subtitles.",
    ),
    OpenPoint(
        "dub-progress",
        "Progress of a job",
        "Each download detail contains the running step of its locale.",
        "A film takes minutes. A status that does not change for so long looks like a fault.",
    ),
    OpenPoint(
        "dub-credits",
        "Credits of a dubbing key",
        f"{DEFAULT_DUB_CREDITS:,} in a billing cycle. The price of a job is reserved when the job is "
        "accepted. Only locales that succeed are billed. credits_used is rounded up to whole credits.",
        "Two jobs must not spend the same credits, and nobody should pay for a failure.",
    ),
    OpenPoint(
        "dub-text",
        "Longest text of a dub",
        f"At most {MAX_DUB_CHARACTERS_PER_SECOND} characters for each second of the media file, which counts "
        f"as at least {MIN_DUB_TEXT_SECONDS} seconds. The limit applies to a script and to a corrected dub. "
        "Cues of the script after the end of the media file do not count. A cue has at most "
        f"{MAX_TEXT_CHARACTERS:,} characters. The total length of all cues is at most "
        f"{MAX_DUB_VOICES_AT_ONCE} times the length of the media file. A larger text gets 400.",
        "The price depends on the length of the media file alone, so much more text than speech would be "
        "free.",
    ),
    OpenPoint(
        "dub-turns",
        "Order of dubbing jobs",
        "Jobs of the highest priority start first, but each lower priority with waiting jobs gets every "
        "fifth start. Within a priority, the key with the longest time since its last start is next, with "
        f"its oldest job. A key has at most {MAX_UNFINISHED_DUB_JOBS} waiting and running jobs. Further jobs "
        "get 503 with Retry-After.",
        "A key with many jobs must not delay other keys, nor fill the disk.",
    ),
    OpenPoint(
        "project-count",
        "Projects of a key",
        f"At most {MAX_DUB_PROJECTS:,}. A further project replaces the project that was unused for the "
        f"longest time, if that is at least {PROJECT_JOB_LIFETIME_SECONDS // 86400} days. Otherwise it gets "
        "400.",
        "The document has no call that removes a project.",
    ),
    OpenPoint(
        "dub-max-credits",
        "Highest price of a job",
        "A job may have the field max_credits. If the price by the service's own measurement is higher, "
        "the job gets "
        '400, and nothing is billed. GET /v1/limits announces the field as "max_credits": true in '
        '"dubbing".',
        "Nobody should pay more than planned because a media file is longer than expected.",
    ),
    OpenPoint(
        "dub-length",
        "Longest media file",
        f"{MAX_DUB_SECONDS // 3600} hours.",
        "Films are shorter. A longer length in a header is probably wrong.",
        "guess",
    ),
)
