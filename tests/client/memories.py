"""The stored memories and the questions about them. No question shares a word with the memory that answers it."""

USER, OTHER_USER = "ana", "bo"
KEYS = {USER: "key-of-ana", OTHER_USER: "key-of-bo"}

# A memory and a question; only the dense leg can find one by the other.
PAIRS = (
    ("The car failed its inspection because of worn brake pads.", "did our vehicle pass the roadworthiness test"),
    ("Grandmother's birthday cake recipe needs six eggs.", "ingredients for baking granny's dessert"),
    ("The boiler in the cellar loses pressure every winter.", "heating system trouble when it is cold"),
    ("Our dog Bruno is allergic to chicken.", "food that the pet must not eat"),
    ("The flight to Lisbon leaves at seven in the morning.", "when does the plane to Portugal take off"),
    ("Disk three of the storage server was replaced after read errors.", "broken hard drive exchanged on the NAS"),
    ("The landlord raises the rent from January.", "apartment becomes more expensive next year"),
    ("Maria works as a nurse at the children's hospital.", "what job does she have at the pediatric clinic"),
    ("The vegetable patch is watered by a timer at dawn.", "automatic garden irrigation schedule"),
    ("Our daughter started playing the violin in autumn.", "which musical instrument is the girl learning"),
    ("The laptop's battery lasts only two hours now.", "notebook computer runs out of power quickly"),
    ("The neighbours lent us their ladder for the roof.", "who did we borrow climbing equipment from"),
    ("The certificate of the web server expires in June.", "renew TLS for the site before summer"),
    ("Uncle Peter moved from Berlin to Vienna.", "where does my relative live these days in Austria"),
    ("The dentist recommended a crown for the upper molar.", "advice about the tooth from the doctor"),
    ("The kitchen tap drips since the plumber was here.", "leaking faucet in the room where we cook"),
)
SUPERSEDED = "The office is open on Saturdays until noon."
SUCCESSOR = "Since March nobody is at the desks during weekends."
ASKS_FOR_SUPERSEDED = "business hours at the weekend"

# The API keeps these as they are, since they hold nothing that its detector takes for a credential.
SENSITIVE = ("The alarm is switched off by quokka-4711.", "My diary says wombat-0815 about the quarrel.")
CANARIES = ("quokka", "wombat")
ASKS_FOR_SENSITIVE = ("how to turn off the alarm quokka", "what does my diary say about the quarrel")
